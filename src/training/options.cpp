// Reads the options. CLI11 splits the command line and lays out the help; what a value may be is said here once for the
// command line and the environment alike, so that both are refused in the same words.
#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/options.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cluster/bare_start.hpp"
#include "cluster/world.hpp"
#include "training/error_handler.hpp"
#include "training/options_parser.hpp"

namespace lockstep {
namespace {

constexpr int int_max = std::numeric_limits<int>::max();

/// A value and where it was said: "--epochs", or the name of a variable.
struct Given {
  std::string source;
  std::string value;
};

[[noreturn]] void refuse(const Given& given, const std::string& allowed) {
  throw UsageError(given.source + " is '" + given.value + "' but must be " + allowed + "; see --help");
}

/// The whole of `text` as a number; false where it is none or does not fit.
template <class Number>
bool read_number(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

int read_int(const Given& given, int least, int most) {
  int number = 0;
  if (!read_number(given.value, number) || number < least || number > most) {
    refuse(given, most == int_max ? "a whole number of at least " + std::to_string(least)
                                  : "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

std::uint64_t read_seed(const Given& given) {
  std::uint64_t number = 0;
  if (!read_number(given.value, number)) refuse(given, "a whole number from 0 to 18446744073709551615");
  return number;
}

double read_positive(const Given& given) {
  double number = 0;
  // Steps compute in float: what is zero or infinite there is refused as well.
  if (!read_number(given.value, number) || !std::isfinite(static_cast<float>(number)) ||
      static_cast<float>(number) <= 0) {
    refuse(given, "a finite number greater than 0");
  }
  return number;
}

bool read_bool(const Given& given) {
  if (given.value == "1" || given.value == "true") return true;
  if (given.value == "0" || given.value == "false") return false;
  refuse(given, "1, true, 0 or false");
}

template <class Enum, std::size_t count>
Enum read_word(const Given& given, const std::array<Enum, count>& all) {
  std::string words;
  for (const Enum one : all) {
    if (given.value == to_string(one)) return one;
    words += (words.empty() ? "" : one == all.back() ? " or " : ", ") + to_string(one);
  }
  refuse(given, words);
}

Precision read_precision(const Given& given) {
  if (given.value == "float16" || given.value == "mixed_float16") {
    refuse(given, "float32 or mixed_bfloat16 (as short, and of float32's range: no loss needs scaling)");
  }
  return read_word(given, std::array{Precision::float32, Precision::mixed_bfloat16});
}

std::int64_t read_backup_frequency(const Given& given) {
  if (given.value == "epoch") return BackupOptions::every_epoch;
  if (given.value == "never") return BackupOptions::never;
  std::int64_t steps = 0;
  if (!read_number(given.value, steps) || steps < 1) {
    refuse(given, "epoch, never or a whole number of at least 1 (optimizer steps)");
  }
  return steps;
}

/// One option: how the help shows it, the templates' variable that means the same, and what its value does.
struct Rule {
  std::string name;  ///< without dashes
  std::string group;
  std::string value;  ///< what stands for it in the help; empty: a flag
  std::string help;
  std::string shown_default;
  std::string template_variable;
  std::function<void(Options&, const Given&)> set;
};

std::string shortest(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", number);
  return text.data();
}

std::string describe_backup_frequency(std::int64_t frequency) {
  if (frequency == BackupOptions::every_epoch) return "epoch";
  return frequency == BackupOptions::never ? "never" : std::to_string(frequency);
}

Rule rule_of(const ProgramOption& own) {
  const auto set = [own](Options& options, const Given& given) {
    own.set(given.value);
    options.own[own.name] = given.value;
  };
  return {own.name, "This program", own.value, own.help, own.shown_default, "", set};
}

std::vector<Rule> rules(const Options& defaults) {
  const auto or_else = [](const std::string& text, const char* empty) { return text.empty() ? empty : text; };
  return {
      {"data-dir", "Data and model", "PATH", "directory of IDX files, or FILE.npz",
       or_else(defaults.data_dir.string(), "embedded digits"), "DATA_DIR",
       [](Options& o, const Given& given) { o.data_dir = given.value; }},
      {"model-dir", "Data and model", "PATH", "where the model and history.json go", defaults.model_dir.string(),
       "MODEL_DIR",
       [](Options& o, const Given& given) {
         if (given.value.empty()) refuse(given, "the path of a directory");
         o.model_dir = given.value;
       }},
      {"input-scale", "Data and model", "X", "bytes are multiplied with it",
       defaults.input_scale ? shortest(*defaults.input_scale) : "1/255; 1 for a model that rescales", "",
       [](Options& o, const Given& given) { o.input_scale = read_positive(given); }},
      {"epochs", "Training", "N", "how often to go over the data", std::to_string(defaults.epochs), "NUM_TRAIN_EPOCH",
       [](Options& o, const Given& given) { o.epochs = read_int(given, 1, int_max); }},
      {"steps-per-epoch", "Training", "N", "optimizer steps in an epoch; 0: one pass over the data",
       std::to_string(defaults.steps_per_epoch), "",
       [](Options& o, const Given& given) { o.steps_per_epoch = read_int(given, 0, int_max); }},
      {"global-batch-size", "Training", "N", "examples in a step, over all workers together",
       std::to_string(defaults.global_batch_size), "BATCH_SIZE",
       [](Options& o, const Given& given) { o.global_batch_size = read_int(given, 1, int_max); }},
      {"learning-rate", "Training", "X", "instead of the optimizer's own",
       defaults.learning_rate ? shortest(*defaults.learning_rate) : "none", "",
       [](Options& o, const Given& given) { o.learning_rate = read_positive(given); }},
      {"initial-weights", "Data and model", "FILE", "begin with those of a .keras, .h5 or .weights.h5 file",
       or_else(defaults.initial_weights.string(), "random"), "",
       [](Options& o, const Given& given) { o.initial_weights = given.value; }},
      {"seed", "Training", "N", "initial weights, order of the examples, Dropout", std::to_string(defaults.seed), "",
       [](Options& o, const Given& given) { o.seed = read_seed(given); }},
      {"precision", "Training", "NAME", "float32 or mixed_bfloat16", to_string(defaults.precision), "",
       [](Options& o, const Given& given) { o.precision = read_precision(given); }},
      {"allow-tf32", "Training", "", "let GPUs round the inputs of float32 products to 10 bits",
       defaults.allow_tf32 ? "on" : "off", "", [](Options& o, const Given& given) { o.allow_tf32 = read_bool(given); }},
      {"replicas", "Training", "N", "slices of a batch that BatchNormalization sees; 0: one a worker",
       std::to_string(defaults.replicas), "",
       [](Options& o, const Given& given) { o.replicas = read_int(given, 0, int_max); }},
      {"deterministic", "Training", "", "choose by rules, never by clocks: same bits in every run",
       defaults.deterministic ? "on" : "off", "",
       [](Options& o, const Given& given) { o.deterministic = read_bool(given); }},
      {"backup-dir", "Restarts", "PATH", "where backups are kept while training",
       or_else(defaults.backup_dir.string(), "MODEL_DIR/backup"), "",
       [](Options& o, const Given& given) { o.backup_dir = given.value; }},
      {"backup-save-freq", "Restarts", "WHEN", "epoch, never, or N: every N optimizer steps",
       describe_backup_frequency(defaults.backup_save_freq), "",
       [](Options& o, const Given& given) { o.backup_save_freq = read_backup_frequency(given); }},
      {"resume", "Restarts", "NAME", "auto: go on from a backup if there is one; require or never",
       to_string(defaults.resume), "",
       [](Options& o, const Given& given) {
         o.resume = read_word(given, std::array{Resume::automatic, Resume::require, Resume::never});
       }},
      {"on-checkpoint-failure", "Restarts", "NAME", "stop, or continue training without the checkpoint",
       to_string(defaults.on_checkpoint_failure), "",
       [](Options& o, const Given& given) {
         o.on_checkpoint_failure = read_word(given, std::array{CheckpointFailure::stop, CheckpointFailure::proceed});
       }},
      {"device", "Workers and output", "NAME", "auto, cpu or cuda", to_string(defaults.device), "",
       [](Options& o, const Given& given) {
         o.device = read_word(given, std::array{Device::automatic, Device::cpu, Device::cuda});
       }},
      {"communication", "Workers and output", "NAME", "auto, shared (within one host), mpi or nccl",
       to_string(defaults.communication), "",
       [](Options& o, const Given& given) {
         o.communication = read_word(given, std::array{Communication::automatic, Communication::shared,
                                                       Communication::mpi, Communication::nccl});
       }},
      {"division", "Workers and output", "NAME", "what workers divide: examples, features or auto",
       to_string(defaults.division), "",
       [](Options& o, const Given& given) {
         o.division = read_word(given, std::array{Division::automatic, Division::examples, Division::features});
       }},
      {"gradient-compression", "Workers and output", "NAME", "none, or bfloat16: half the bytes between hosts",
       to_string(defaults.gradient_compression), "",
       [](Options& o, const Given& given) {
         o.gradient_compression =
             read_word(given, std::array{GradientCompression::none, GradientCompression::bfloat16});
       }},
      {"verbose", "Workers and output", "N", "0: silent, 1: progress bar, 2: one line an epoch",
       std::to_string(defaults.verbose), "", [](Options& o, const Given& given) { o.verbose = read_int(given, 0, 2); }},
  };
}

/// What only training needs.
bool is_for_training(const Rule& rule) {
  constexpr std::array names{"model-dir", "epochs", "steps-per-epoch", "learning-rate", "seed", "replicas"};
  return rule.group == "Restarts" || std::find(names.begin(), names.end(), rule.name) != names.end();
}

constexpr const char* footer =
    "Every option is also read from the environment: LOCKSTEP_EPOCHS for --epochs, and so on; then from\n"
    "DATA_DIR, MODEL_DIR, BATCH_SIZE (the global batch) and NUM_TRAIN_EPOCH. The command line wins.\n"
    "Exit codes: 0 done, 64 usage, 65 bad data or NaN loss, 70 internal, 74 input/output, 75 lost a peer";

/// What the command line says, by option name. Throws UsageError or TextRequest.
std::map<std::string, Given> split_command_line(std::span<const std::string> args, const std::vector<Rule>& all,
                                                const std::string& program, const Purpose& purpose) {
  CLI::App app(purpose.sentence + ": mpirun -np 2 " + program + " [OPTIONS]", program);
  app.get_formatter()->column_width(32);
  app.set_help_flag();  // taken back and added last, so that it stands last
  std::vector<CLI::Option*> options;
  for (const Rule& rule : all) {
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
  std::map<std::string, Given> given;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (options[i]->count() == 0) continue;
    Given one{"--" + all[i].name, options[i]->results().back()};
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
  std::vector<Rule> all;
  for (const ProgramOption& option : own) all.push_back(rule_of(option));
  for (Rule& rule : rules(defaults)) {
    if (!purpose.trains && is_for_training(rule)) continue;
    if (!purpose.trains && rule.group == "Training") rule.group = "Computation";
    all.push_back(std::move(rule));
  }
  const std::map<std::string, Given> command_line = split_command_line(args, all, defaults.program, purpose);
  Options options = std::move(defaults);
  for (const Rule& rule : all) {
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

Record describe_options(const Options& options) {
  Record record{{"data_dir", options.data_dir.string()},
                {"model_dir", options.model_dir.string()},
                {"epochs", options.epochs},
                {"steps_per_epoch", options.steps_per_epoch},
                {"global_batch_size", options.global_batch_size},
                {"learning_rate", options.learning_rate.value_or(std::numeric_limits<double>::quiet_NaN())},
                {"initial_weights", options.initial_weights.string()},
                {"input_scale", options.input_scale.value_or(std::numeric_limits<double>::quiet_NaN())},
                {"seed", options.seed},
                {"device", to_string(options.device)},
                {"communication", to_string(options.communication)},
                {"precision", to_string(options.precision)},
                {"allow_tf32", options.allow_tf32},
                {"division", to_string(options.division)},
                {"gradient_compression", to_string(options.gradient_compression)},
                {"replicas", options.replicas},
                {"deterministic", options.deterministic},
                {"backup_dir", options.backup_dir.string()},
                {"backup_save_freq", describe_backup_frequency(options.backup_save_freq)},
                {"resume", to_string(options.resume)},
                {"on_checkpoint_failure", to_string(options.on_checkpoint_failure)},
                {"verbose", options.verbose},
                {"program", options.program}};
  for (const auto& [name, value] : options.own) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    record[key] = value;
  }
  return record;
}

std::string to_string(Device device) {
  switch (device) {
    case Device::automatic: return "auto";
    case Device::cpu: return "cpu";
    case Device::cuda: return "cuda";
  }
  return "?";
}

std::string to_string(Communication communication) {
  switch (communication) {
    case Communication::automatic: return "auto";
    case Communication::shared: return "shared";
    case Communication::mpi: return "mpi";
    case Communication::nccl: return "nccl";
  }
  return "?";
}

std::string to_string(Division division) {
  switch (division) {
    case Division::automatic: return "auto";
    case Division::examples: return "examples";
    case Division::features: return "features";
  }
  return "?";
}

std::string to_string(GradientCompression compression) {
  return compression == GradientCompression::bfloat16 ? "bfloat16" : "none";
}

std::string to_string(Resume resume) {
  switch (resume) {
    case Resume::automatic: return "auto";
    case Resume::require: return "require";
    case Resume::never: return "never";
  }
  return "?";
}

std::string to_string(CheckpointFailure failure) {
  switch (failure) {
    case CheckpointFailure::stop: return "stop";
    case CheckpointFailure::proceed: return "continue";
  }
  return "?";
}

std::string to_string(Precision precision) {
  switch (precision) {
    case Precision::float32: return "float32";
    case Precision::mixed_bfloat16: return "mixed_bfloat16";
  }
  return "?";
}

}  // namespace lockstep
