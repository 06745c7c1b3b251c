// See option_rules.hpp.
#include "training/option_rules.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <system_error>

#include "training/describe_options.hpp"

namespace lockstep {
namespace {

constexpr int int_max = std::numeric_limits<int>::max();

[[noreturn]] void refuse(const GivenValue& given, const std::string& allowed) {
  throw UsageError(given.source + " is '" + given.value + "' but must be " + allowed + "; see --help");
}

/// The whole of `text` as a number; false where it is none or does not fit.
template <class Number>
bool read_number(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

int read_int(const GivenValue& given, int least, int most) {
  int number = 0;
  if (!read_number(given.value, number) || number < least || number > most) {
    refuse(given, most == int_max ? "a whole number of at least " + std::to_string(least)
                                  : "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

std::uint64_t read_seed(const GivenValue& given) {
  std::uint64_t number = 0;
  if (!read_number(given.value, number)) refuse(given, "a whole number from 0 to 18446744073709551615");
  return number;
}

double read_positive(const GivenValue& given) {
  double number = 0;
  // Steps compute in float: what is zero or infinite there is refused as well.
  if (!read_number(given.value, number) || !std::isfinite(static_cast<float>(number)) ||
      static_cast<float>(number) <= 0) {
    refuse(given, "a finite number greater than 0");
  }
  return number;
}

bool read_bool(const GivenValue& given) {
  if (given.value == "1" || given.value == "true") return true;
  if (given.value == "0" || given.value == "false") return false;
  refuse(given, "1, true, 0 or false");
}

template <class Enum, std::size_t count>
Enum read_word(const GivenValue& given, const std::array<Enum, count>& all) {
  std::string words;
  for (const Enum one : all) {
    if (given.value == to_string(one)) return one;
    words += (words.empty() ? "" : one == all.back() ? " or " : ", ") + to_string(one);
  }
  refuse(given, words);
}

Precision read_precision(const GivenValue& given) {
  if (given.value == "float16" || given.value == "mixed_float16") {
    refuse(given, "float32 or mixed_bfloat16 (as short, and of float32's range: no loss needs scaling)");
  }
  return read_word(given, std::array{Precision::float32, Precision::mixed_bfloat16});
}

std::int64_t read_backup_frequency(const GivenValue& given) {
  if (given.value == "epoch") return BackupOptions::every_epoch;
  if (given.value == "never") return BackupOptions::never;
  std::int64_t steps = 0;
  if (!read_number(given.value, steps) || steps < 1) {
    refuse(given, "epoch, never or a whole number of at least 1 (optimizer steps)");
  }
  return steps;
}

std::string shortest(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", number);
  return text.data();
}

}  // namespace

std::vector<OptionRule> shared_rules(const Options& defaults) {
  const auto or_else = [](const std::string& text, const char* empty) { return text.empty() ? empty : text; };
  return {
      {"data-dir", "Data and model", "PATH", "directory of IDX files, or FILE.npz",
       or_else(defaults.data_dir.string(), "embedded digits"), "DATA_DIR",
       [](Options& o, const GivenValue& given) { o.data_dir = given.value; }},
      {"model-dir", "Data and model", "PATH", "where the model and history.json go", defaults.model_dir.string(),
       "MODEL_DIR",
       [](Options& o, const GivenValue& given) {
         if (given.value.empty()) refuse(given, "the path of a directory");
         o.model_dir = given.value;
       }},
      {"input-scale", "Data and model", "X", "bytes are multiplied with it",
       defaults.input_scale ? shortest(*defaults.input_scale) : "1/255; 1 for a model that rescales", "",
       [](Options& o, const GivenValue& given) { o.input_scale = read_positive(given); }},
      {"epochs", "Training", "N", "how often to go over the data", std::to_string(defaults.epochs), "NUM_TRAIN_EPOCH",
       [](Options& o, const GivenValue& given) { o.epochs = read_int(given, 1, int_max); }},
      {"steps-per-epoch", "Training", "N", "optimizer steps in an epoch; 0: one pass over the data",
       std::to_string(defaults.steps_per_epoch), "",
       [](Options& o, const GivenValue& given) { o.steps_per_epoch = read_int(given, 0, int_max); }},
      {"global-batch-size", "Training", "N", "examples in a step, over all workers together",
       std::to_string(defaults.global_batch_size), "BATCH_SIZE",
       [](Options& o, const GivenValue& given) { o.global_batch_size = read_int(given, 1, int_max); }},
      {"learning-rate", "Training", "X", "instead of the optimizer's own",
       defaults.learning_rate ? shortest(*defaults.learning_rate) : "none", "",
       [](Options& o, const GivenValue& given) { o.learning_rate = read_positive(given); }},
      {"initial-weights", "Data and model", "FILE", "begin with those of a .keras, .h5 or .weights.h5 file",
       or_else(defaults.initial_weights.string(), "random"), "",
       [](Options& o, const GivenValue& given) { o.initial_weights = given.value; }},
      {"seed", "Training", "N", "initial weights, order of the examples, Dropout", std::to_string(defaults.seed), "",
       [](Options& o, const GivenValue& given) { o.seed = read_seed(given); }},
      {"precision", "Training", "NAME", "float32 or mixed_bfloat16", to_string(defaults.precision), "",
       [](Options& o, const GivenValue& given) { o.precision = read_precision(given); }},
      {"allow-tf32", "Training", "", "let GPUs round the inputs of float32 products to 10 bits",
       defaults.allow_tf32 ? "on" : "off", "",
       [](Options& o, const GivenValue& given) { o.allow_tf32 = read_bool(given); }},
      {"replicas", "Training", "N", "slices of a batch that BatchNormalization sees; 0: one a worker",
       std::to_string(defaults.replicas), "",
       [](Options& o, const GivenValue& given) { o.replicas = read_int(given, 0, int_max); }},
      {"deterministic", "Training", "", "choose by rules, never by clocks: same bits in every run",
       defaults.deterministic ? "on" : "off", "",
       [](Options& o, const GivenValue& given) { o.deterministic = read_bool(given); }},
      {"backup-dir", "Restarts", "PATH", "where backups are kept while training",
       or_else(defaults.backup_dir.string(), "MODEL_DIR/backup"), "",
       [](Options& o, const GivenValue& given) { o.backup_dir = given.value; }},
      {"backup-save-freq", "Restarts", "WHEN", "epoch, never, or N: every N optimizer steps",
       describe_backup_frequency(defaults.backup_save_freq), "",
       [](Options& o, const GivenValue& given) { o.backup_save_freq = read_backup_frequency(given); }},
      {"resume", "Restarts", "NAME", "auto: go on from a backup if there is one; require or never",
       to_string(defaults.resume), "",
       [](Options& o, const GivenValue& given) {
         o.resume = read_word(given, std::array{Resume::automatic, Resume::require, Resume::never});
       }},
      {"on-checkpoint-failure", "Restarts", "NAME", "stop, or continue training without the checkpoint",
       to_string(defaults.on_checkpoint_failure), "",
       [](Options& o, const GivenValue& given) {
         o.on_checkpoint_failure = read_word(given, std::array{CheckpointFailure::stop, CheckpointFailure::proceed});
       }},
      {"device", "Workers and output", "NAME", "auto, cpu or cuda", to_string(defaults.device), "",
       [](Options& o, const GivenValue& given) {
         o.device = read_word(given, std::array{Device::automatic, Device::cpu, Device::cuda});
       }},
      {"communication", "Workers and output", "NAME", "auto, shared (within one host), mpi or nccl",
       to_string(defaults.communication), "",
       [](Options& o, const GivenValue& given) {
         o.communication = read_word(given, std::array{Communication::automatic, Communication::shared,
                                                       Communication::mpi, Communication::nccl});
       }},
      {"division", "Workers and output", "NAME", "what workers divide: examples, features or auto",
       to_string(defaults.division), "",
       [](Options& o, const GivenValue& given) {
         o.division = read_word(given, std::array{Division::automatic, Division::examples, Division::features});
       }},
      {"gradient-compression", "Workers and output", "NAME", "none, or bfloat16: half the bytes between hosts",
       to_string(defaults.gradient_compression), "",
       [](Options& o, const GivenValue& given) {
         o.gradient_compression =
             read_word(given, std::array{GradientCompression::none, GradientCompression::bfloat16});
       }},
      {"verbose", "Workers and output", "N", "0: silent, 1: progress bar, 2: one line an epoch",
       std::to_string(defaults.verbose), "",
       [](Options& o, const GivenValue& given) { o.verbose = read_int(given, 0, 2); }},
  };
}

OptionRule rule_of(const ProgramOption& own) {
  const auto set = [own](Options& options, const GivenValue& given) {
    own.set(given.value);
    options.own[own.name] = given.value;
  };
  return {own.name, "This program", own.value, own.help, own.shown_default, "", set};
}

bool is_for_training(const OptionRule& rule) {
  constexpr std::array names{"model-dir", "epochs", "steps-per-epoch", "learning-rate", "seed", "replicas"};
  return rule.group == "Restarts" || std::find(names.begin(), names.end(), rule.name) != names.end();
}

}  // namespace lockstep
