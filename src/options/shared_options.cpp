// See shared_options.hpp. A new option is a member of Options and a row here.
#include "options/shared_options.hpp"

#include "core/parse_number.hpp"
#include "options/other_variables.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/backup_and_restore.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* data_and_model = "Data and model";
constexpr const char* training = "Training";
constexpr const char* restarts = "Restarts";
constexpr const char* workers_and_output = "Workers and output";

constexpr const char* footer =
    "Defaults may come from LOCKSTEP_EPOCHS etc., DATA_DIR, MODEL_DIR, BATCH_SIZE and NUM_TRAIN_EPOCH.\n"
    "Exit codes: 0 done, 64 usage, 65 bad data or NaN loss, 70 internal, 74 input/output, 75 lost a peer";

OptionBinding nonempty_path(std::filesystem::path& variable, const char* what = "the path of a directory") {
  OptionBinding binding = path(variable);
  binding.set = [what, set = std::move(binding.set)](const OptionValue& given) {
    if (given.value.empty()) refuse(given, what);
    set(given);
  };
  return binding;
}

std::string default_data_of(const std::string& program) {
  if (program == "lockstep plan") return "not read";
  return program.starts_with("lockstep ") ? "required" : "synthetic data";
}

OptionBinding precision(Precision& variable) {
  OptionBinding binding = word(variable);
  binding.set = [set = std::move(binding.set)](const OptionValue& given) {
    if (given.value == "float16" || given.value == "mixed_float16") {
      refuse(given, "float32 or mixed_bfloat16 (16 bits with float32's range: the loss needs no scaling)");
    }
    set(given);
  };
  return binding;
}

OptionBinding backup_frequency(std::int64_t& variable) {
  const auto print = [&variable] {
    if (variable == BackupOptions::every_epoch) return std::string("epoch");
    return variable == BackupOptions::never ? std::string("never") : std::to_string(variable);
  };
  const auto set = [&variable](const OptionValue& given) {
    if (given.value == "epoch") {
      variable = BackupOptions::every_epoch;
    } else if (given.value == "never") {
      variable = BackupOptions::never;
    } else if (const auto steps = parse_number<std::int64_t>(given.value); steps && *steps >= 1) {
      variable = *steps;
    } else {
      refuse(given, "epoch, never or a whole number of at least 1 (optimizer steps)");
    }
  };
  return {set, print, [print] { return NamedValue(print()); }};
}

OptionBinding staleness_bound(std::int64_t& variable) {
  const auto print = [&variable] { return variable < 0 ? std::string("none") : std::to_string(variable); };
  const auto set = [&variable](const OptionValue& given) {
    const auto updates = parse_number<std::int64_t>(given.value);
    if (given.value != "none" && !(updates && *updates >= 0)) refuse(given, "none or a whole number of at least 0");
    variable = updates.value_or(-1);
  };
  return {set, print, [print] { return NamedValue(print()); }};
}

/// A program's own option. Setting it also records it in `options` under its name.
OptionRow row_of(const ProgramOption& option, Options& options) {
  const auto set = [option, &options](const OptionValue& given) {
    option.set(given);
    options.program_options[option.name] = given.value;
  };
  return {.name = option.name,
          .group = "This program",
          .metavar = option.metavar,
          .help = option.help,
          .value = {set, [shown = option.shown_default] { return shown; }, [] { return NamedValue(); }}};
}

}  // namespace

std::vector<OptionRow> shared_options(Options& options) {
  return {
      {.name = "data-dir",
       .group = data_and_model,
       .metavar = "PATH",
       .help = options.program == "lockstep predict" ? "FILE.npy, FILE.npz, or directory of IDX or CIFAR files"
                                                     : "directory of IDX or CIFAR files, or FILE.npz",
       .value = nonempty_path(options.data_dir, "a path"),
       .default_text = default_data_of(options.program),
       .template_variable = "DATA_DIR",
       .ranks_may_differ = true,
       .of_world_or_data = true},
      {.name = "model-dir",
       .group = data_and_model,
       .metavar = "PATH",
       .help = "directory for the model and history.json",
       .value = nonempty_path(options.model_dir),
       .template_variable = "MODEL_DIR",
       .ranks_may_differ = true,
       .training_only = true},
      {.name = "input-scale",
       .group = data_and_model,
       .metavar = "X",
       .help = "factor for byte inputs",
       .value = positive_number(options.input_scale, read_factor),
       .default_text = "1/255 for pictures, 1 if the model rescales",
       .of_world_or_data = true,
       .resume_needs_equal = true},
      {.name = "initial-weights",
       .group = data_and_model,
       .metavar = "FILE",
       .help = "start from the weights of a .keras, .h5 or .weights.h5 file",
       .value = nonempty_path(options.initial_weights, "the path of a file"),
       .default_text = "random",
       .of_world_or_data = true},
      {.name = "epochs",
       .group = training,
       .metavar = "N",
       .help = "epochs to train, each of --steps-per-epoch steps",
       .value = whole_number(options.epochs, 1),
       .template_variable = "NUM_TRAIN_EPOCH",
       .training_only = true},
      {.name = "steps-per-epoch",
       .group = training,
       .metavar = "N",
       .help = "optimizer steps in an epoch; 0: one pass over the data",
       .value = whole_number(options.steps_per_epoch, 0),
       .training_only = true},
      {.name = "global-batch-size",
       .group = training,
       .metavar = "N",
       .help = "examples in a step, over all workers together",
       .value = whole_number(options.global_batch_size, 1),
       .template_variable = "BATCH_SIZE",
       .of_world_or_data = true},
      {.name = "learning-rate",
       .group = training,
       .metavar = "X",
       .help = "replaces the optimizer's learning rate",
       .value = positive_number(options.learning_rate),
       .default_text = "none",
       .training_only = true},
      {.name = "seed",
       .group = training,
       .metavar = "N",
       .help = "of weights, the order of examples, and random layers",
       .value = whole_number(options.seed, 0),
       .training_only = true,
       .resume_needs_equal = true},
      {.name = "precision",
       .group = training,
       .metavar = "NAME",
       .help = "float32, mixed_bfloat16, or auto: as the model's file says",
       .value = precision(options.precision),
       .resume_needs_equal = true},
      {.name = "convolutions",
       .group = training,
       .metavar = "NAME",
       .help = "auto, or direct: without Winograd's algorithm on CPUs",
       .value = word(options.convolutions),
       .resume_needs_equal = true},
      {.name = "clip-probabilities",
       .group = training,
       .help = "compute crossentropies as Keras on JAX and PyTorch does",
       .value = flag(options.clip_probabilities),
       .of_world_or_data = true,
       .resume_needs_equal = true},
      {.name = "allow-tf32",
       .group = training,
       .help = "let GPUs round the inputs of float32 products to 10 bits",
       .value = flag(options.allow_tf32)},
      {.name = "batch-norm-replicas",
       .group = training,
       .metavar = "N",
       .help = "slices of a batch that BatchNormalization sees; 0: 1 per worker",
       .value = whole_number(options.batch_norm_replicas, 0),
       .training_only = true},
      {.name = "deterministic",
       .group = training,
       .help = "choose by rules, not by timing: the same bits in every run",
       .value = flag(options.deterministic)},
      {.name = "backup-dir",
       .group = restarts,
       .metavar = "PATH",
       .help = "directory for backups during training",
       .value = nonempty_path(options.backup_dir),
       .default_text = "MODEL_DIR/backup",
       .ranks_may_differ = true,
       .training_only = true},
      {.name = "backup-save-freq",
       .group = restarts,
       .metavar = "WHEN",
       .help = "epoch, never, or N: every N optimizer steps",
       .value = backup_frequency(options.backup_save_freq),
       .training_only = true},
      {.name = "resume",
       .group = restarts,
       .metavar = "NAME",
       .help = "auto: resume from a backup if there is one; require or never",
       .value = word(options.resume),
       .ranks_may_differ = true,
       .training_only = true},
      {.name = "on-checkpoint-failure",
       .group = restarts,
       .metavar = "NAME",
       .help = "stop, or continue training without the checkpoint",
       .value = word(options.on_checkpoint_failure),
       .ranks_may_differ = true,
       .training_only = true},
      {.name = "device",
       .group = workers_and_output,
       .metavar = "NAME",
       .help = "auto, cpu or cuda",
       .value = word(options.device),
       .ranks_may_differ = true},
      {.name = "communication",
       .group = workers_and_output,
       .metavar = "NAME",
       .help = "auto, shared (within one host), mpi or nccl",
       .value = word(options.communication),
       .of_world_or_data = true},
      {.name = "parallelism",
       .group = workers_and_output,
       .metavar = "NAME",
       .help = "data, tensor or auto: slice the batch or the layers",
       .value = word(options.parallelism),
       .of_world_or_data = true},
      {.name = "strategy",
       .group = workers_and_output,
       .metavar = "NAME",
       .help = "mirrored, or parameter-server: ps tasks hold variables",
       .value = word(options.strategy),
       .training_only = true},
      {.name = "ps-placement",
       .group = workers_and_output,
       .metavar = "NAME",
       .help = "round-robin, greedy or partitioned: what each ps holds",
       .value = text(options.ps_placement),
       .training_only = true},
      {.name = "ps-mode",
       .group = workers_and_output,
       .metavar = "NAME",
       .help = "synchronous, or asynchronous: ps wait for no worker",
       .value = word(options.ps_mode),
       .training_only = true,
       .resume_needs_equal = true},
      {.name = "max-staleness",
       .group = workers_and_output,
       .metavar = "K",
       .help = "updates that an asynchronous gradient may miss, or none",
       .value = staleness_bound(options.max_staleness),
       .training_only = true,
       .resume_needs_equal = true},
      {.name = "replicas-to-aggregate",
       .group = workers_and_output,
       .metavar = "M",
       .help = "gradients that a step of ps waits for; 0: all workers'",
       .value = whole_number(options.replicas_to_aggregate, 0),
       .training_only = true,
       .resume_needs_equal = true},
      {.name = "gradient-compression",
       .group = workers_and_output,
       .metavar = "NAME",
       .help = "none, or bfloat16: half the bytes between hosts",
       .value = word(options.gradient_compression),
       .of_world_or_data = true},
      {.name = "collective-timeout",
       .group = workers_and_output,
       .metavar = "SECONDS",
       .help = "how long a rank waits for another; 0: no limit",
       .value = seconds(options.collective_timeout, 0.1, true),
       .ranks_may_differ = true,
       .of_world_or_data = true},
      {.name = "assumed-hardware",
       .metavar = "LATENCY,BYTES_PER_SECOND,FLOPS",
       .help = "choose the parallelism for these links and kernels, not for measured ones",
       .value = text(options.assumed_hardware),
       .ranks_may_differ = true,  // the chief's choice counts
       .for_developers = true},
      {.name = "sharding",
       .metavar = "CODE",
       .help = "with --parallelism tensor: take this sharding, search none",
       .value = text(options.sharding),
       .for_developers = true},
      {.name = "layout",
       .metavar = "NAME",
       .help = "nhwc, nChw16c or nChw8c for all images that it fits, not the fastest for each",
       .value = text(options.layout),
       .for_developers = true},
      {.name = "verbose",
       .group = workers_and_output,
       .metavar = "N",
       .help = "0: silent, 1: progress bar, 2: kernels, one line per epoch",
       .value = whole_number(options.verbose, 0, 2),
       .ranks_may_differ = true},
  };
}

Options parse_options(std::span<const std::string> args, const Environment& environment, Options defaults,
                      std::span<const ProgramOption> program_options, const ProgramPurpose& purpose) {
  Options options = std::move(defaults);
  std::vector<OptionRow> rows;
  for (const ProgramOption& option : program_options) rows.push_back(row_of(option, options));
  for (OptionRow& row : shared_options(options)) {
    if (!purpose.trains && row.training_only) continue;
    if (purpose.is_one_process && row.of_world_or_data) continue;
    if (!purpose.trains && row.group == training) row.group = "Computation";
    rows.push_back(std::move(row));
  }
  parse_rows(args, environment, rows,
             {.name = options.program,
              .description = purpose.sentence + ": " + (purpose.is_one_process ? "" : "mpirun -np 2 ") +
                             options.program + " [OPTIONS]",
              .footer = footer});
  if (options.backup_dir.empty()) options.backup_dir = options.model_dir / "backup";
  if (options.batch_norm_replicas > options.global_batch_size) {
    throw UsageError(
        fmt::format("--batch-norm-replicas is {} but must be at most the global batch size, {}; see --help",
                    options.batch_norm_replicas, options.global_batch_size));
  }
  return options;
}

std::vector<std::string> with_variables(std::vector<std::string> arguments, const Environment& environment) {
  Options defaults;
  const std::vector<OptionRow> rows = shared_options(defaults);
  for (const auto& [name, value] : environment) {
    const bool is_option = name.starts_with("LOCKSTEP_") && !has_other_reader(name, value);
    const bool is_of_templates = std::ranges::find(rows, name, &OptionRow::template_variable) != rows.end();
    if (!name.empty() && !value.empty() && (is_option || is_of_templates)) arguments.push_back(name + "=" + value);
  }
  return arguments;
}

NamedValues describe_options(const Options& options) {
  NamedValues record{{"program", options.program}};
  const auto key_of = [](std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  };
  Options copy = options;
  for (const OptionRow& row : shared_options(copy)) {
    if (row.for_developers && row.shown_default().empty()) continue;
    record[key_of(row.name)] = row.value.record();
  }
  for (const auto& [name, value] : options.program_options) {
    const auto number = parse_number<double>(value);
    const auto whole = parse_number<std::int64_t>(value);
    const bool is_finite = number && std::isfinite(*number);
    record[key_of(name)] = whole ? NamedValue(*whole) : is_finite ? NamedValue(*number) : NamedValue(value);
  }
  return record;
}

namespace {

template <typename Predicate>
std::vector<std::pair<std::string, std::string>> texts_of_options(Options options, Predicate is_wanted) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const OptionRow& row : shared_options(options)) {
    if (!is_wanted(row)) continue;
    const std::string text = row.value.print();
    texts.emplace_back("--" + row.name, text.empty() ? "none" : text);
  }
  return texts;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> options_to_agree_on(const Options& options) {
  return texts_of_options(options, [](const OptionRow& row) { return !row.ranks_may_differ; });
}

std::vector<std::pair<std::string, std::string>> options_to_resume_with(const Options& options) {
  return texts_of_options(options, [](const OptionRow& row) { return row.resume_needs_equal; });
}

}  // namespace lockstep
