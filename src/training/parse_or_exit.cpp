// See parse_or_exit.hpp.
#include "training/parse_or_exit.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "cluster/config/strategy_variable.hpp"
#include "cluster/config/task_options.hpp"
#include "cluster/launcher/exec_launcher.hpp"
#include "cluster/world/world.hpp"
#include "core/bound_spinning.hpp"
#include "core/log.hpp"
#include "training/error_handler.hpp"

namespace lockstep {

namespace {

/// Takes the options that describe the cluster, for this process and the launcher that it may become.
void take_task_options_once(std::vector<std::string>& args, Environment& environment) {
  const std::size_t given = args.size();
  const std::vector<std::string> warnings = take_task_options(args, environment);
  if (args.size() == given) return;
  if (environment.contains("LOCKSTEP_CONTROL_FD")) {
    throw UsageError(
        "--job_name and --task_index are options of the program, but lockstep launch has started it and does not know "
        "the cluster; give them to lockstep launch, before --");
  }
  for (const std::string& warning : warnings) log_warning(warning);
  (void)setenv("TF_CONFIG", value_of(environment, "TF_CONFIG").c_str(), 1);
}

}  // namespace

Options parse_or_exit(std::span<const std::string> args, Options defaults,
                      std::span<const ProgramOption> program_options, const ProgramPurpose& purpose) {
  install_error_handler();  // here, because parsing is the first thing a program does
  Environment environment = current_environment();
  try {
    std::vector<std::string> own(args.begin(), args.end());
    take_task_options_once(own, environment);
    Options options = parse_options(own, environment, std::move(defaults), program_options, purpose);
    std::vector<std::string> program_names;
    for (const ProgramOption& option : program_options) program_names.push_back(option.name);
    for (const auto& [name, hint, is_of_other] :
         find_unknown_variables(environment, shared_options(options), program_names)) {
      if (is_of_other) {
        if (launcher_rank(environment) == 0) log_warning("no option reads the variable " + name + hint);
        continue;
      }
      throw UsageError("no option reads the variable " + name + hint +
                       (hint.empty() ? "; rename or unset it" : " Rename or unset it"));
    }
    if (purpose.trains && options.strategy == StrategyKind::parameter_server) {  // perhaps the program's default
      environment[strategy_variable] = parameter_server_word;
      (void)setenv(strategy_variable, parameter_server_word, 1);
    }
    if (purpose.trains) exec_launcher_if_needed(environment);
    return options;
  } catch (const TextRequest& request) {
    if (launcher_rank(environment) == 0) std::cout << request.text << std::flush;
    std::exit(static_cast<int>(ExitCode::success));
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  }
}

Options Options::parse(int argc, char** argv, Options defaults, const std::vector<ProgramOption>& program_options) {
  bound_spinning();
  const std::string self = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : std::string();
  if (defaults.program.empty()) defaults.program = self.empty() ? "program" : self;
  return parse_or_exit(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), std::move(defaults),
                       program_options);
}

}  // namespace lockstep
