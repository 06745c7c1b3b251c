// Reads the options: CLI11 splits the command line and lays out the help, option_rules.hpp says what there is to be
// said.
#include <lockstep/core/error.hpp>
#include <lockstep/training/options.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/bare_start.hpp"
#include "cluster/world.hpp"
#include "training/error_handler.hpp"
#include "training/option_rules.hpp"
#include "training/options_parser.hpp"

namespace lockstep {
namespace {

constexpr const char* footer =
    "Every option is also read from the environment: LOCKSTEP_EPOCHS for --epochs, and so on; then from\n"
    "DATA_DIR, MODEL_DIR, BATCH_SIZE (the global batch) and NUM_TRAIN_EPOCH. The command line wins.\n"
    "Exit codes: 0 done, 64 usage, 65 bad data or NaN loss, 70 internal, 74 input/output, 75 lost a peer";

/// What the command line says, by option name. Throws UsageError or TextRequest.
std::map<std::string, GivenValue> split_command_line(std::span<const std::string> args,
                                                     const std::vector<OptionRule>& all, const std::string& program,
                                                     const Purpose& purpose) {
  CLI::App app(purpose.sentence + ": mpirun -np 2 " + program + " [OPTIONS]", program);
  app.get_formatter()->column_width(32);
  app.set_help_flag();  // taken back and added last, so that it stands last
  std::vector<CLI::Option*> options;
  for (const OptionRule& rule : all) {
    const std::string help = rule.help + " [" + rule.shown_default + "]";
    CLI::Option* option = rule.value.empty() ? app.add_flag("--" + rule.name, help)
                                             : app.add_option("--" + rule.name, help)->type_name(rule.value);
    option->group(rule.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    options.push_back(option);
  }
  app.set_version_flag("--version", program + " (Lockstep " LOCKSTEP_VERSION ")", "print the version")
      ->group("Workers and output");
  app.set_help_flag("-h,--help", "print this")->group("Workers and output");
  app.footer(footer);
  app.allow_extras();
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them back to front
  } catch (const CLI::CallForHelp&) {
    throw TextRequest{app.help()};
  } catch (const CLI::CallForVersion& version) {
    throw TextRequest{std::string(version.what()) + "\n"};
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "--epochs: 1 required N missing"
    throw UsageError(text.substr(0, text.find(':')) + " needs a value; see --help");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see --help");
  }
  std::map<std::string, GivenValue> given;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (options[i]->count() == 0) continue;
    GivenValue one{"--" + all[i].name, options[i]->results().back()};
    if (one.value.starts_with("--")) throw UsageError(one.source + " needs a value; see --help");
    given[all[i].name] = std::move(one);
  }
  if (const auto unknown = app.remaining(); !unknown.empty()) {
    throw UsageError((unknown.front().starts_with('-') ? "there is no option '" : "there is no use for '") +
                     unknown.front() + "'; see --help");
  }
  return given;
}

}  // namespace

Options parse_options(std::span<const std::string> args, const Environment& environment, Options defaults,
                      std::span<const ProgramOption> own, const Purpose& purpose) {
  std::vector<OptionRule> all;
  for (const ProgramOption& option : own) all.push_back(rule_of(option));
  for (OptionRule& rule : shared_rules(defaults)) {
    if (!purpose.trains && is_for_training(rule)) continue;
    if (!purpose.trains && rule.group == "Training") rule.group = "Computation";
    all.push_back(std::move(rule));
  }
  const std::map<std::string, GivenValue> command_line = split_command_line(args, all, defaults.program, purpose);
  Options options = std::move(defaults);
  for (const OptionRule& rule : all) {
    if (const auto said = command_line.find(rule.name); said != command_line.end()) {
      rule.set(options, said->second);
      continue;
    }
    for (const std::string& variable : {variable_of_option(rule.name), rule.template_variable}) {
      // An empty variable counts as unset: manifests often pass on what nobody filled in.
      if (const std::string value = value_of(environment, variable); !value.empty()) {
        rule.set(options, {variable, value});
        break;
      }
    }
  }
  if (options.backup_dir.empty()) options.backup_dir = options.model_dir / "backup";
  if (options.replicas > options.global_batch_size) {
    throw UsageError("--replicas is " + std::to_string(options.replicas) +
                     " but must be at most the global batch size, " + std::to_string(options.global_batch_size) +
                     "; see --help");
  }
  return options;
}

Options parse_or_exit(std::span<const std::string> args, Options defaults, std::span<const ProgramOption> own,
                      const Purpose& purpose) {
  install_error_handler();  // the first line of a program; the next may load data
  const Environment environment = current_environment();
  try {
    Options options = parse_options(args, environment, std::move(defaults), own, purpose);
    if (purpose.trains) continue_in_launcher_if_bare(environment);
    return options;
  } catch (const TextRequest& request) {
    if (launcher_rank(environment) == 0) std::cout << request.text << std::flush;
    std::exit(static_cast<int>(ExitCode::success));
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  }
}

Options Options::parse(int argc, char** argv, Options defaults, const std::vector<ProgramOption>& own) {
  const std::string self = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : std::string();
  if (defaults.program.empty()) defaults.program = self.empty() ? "program" : self;
  return parse_or_exit(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), std::move(defaults), own);
}

}  // namespace lockstep
