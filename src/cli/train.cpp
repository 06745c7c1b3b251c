// See train.hpp.
#include "cli/train.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/model_file.hpp"
#include "cli/check_output.hpp"
#include "cli/warn_of_backends.hpp"
#include "core/log.hpp"
#include "options/read_value.hpp"
#include "training/parse_or_exit.hpp"

#include <lockstep/lockstep.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr const char* train_program = "lockstep train";

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::vector<AnyCallback> callbacks_of(const TrainSettings& settings, const Options& options, bool validates) {
  std::vector<AnyCallback> callbacks;
  if (settings.early_stopping) {
    const char* monitor = validates ? "val_loss" : "loss";
    callbacks.emplace_back(EarlyStopping({.monitor = monitor,
                                          .min_delta = settings.early_stopping_min_delta.value_or(0),
                                          .patience = *settings.early_stopping}));
  }
  if (!settings.csv_log.empty()) callbacks.emplace_back(CSVLogger(settings.csv_log));
  if (!settings.tensorboard_dir.empty()) callbacks.emplace_back(TensorBoard({.log_dir = settings.tensorboard_dir}));
  callbacks.emplace_back(BackupAndRestore(options));
  return callbacks;
}

}  // namespace

std::vector<ProgramOption> train_options(TrainSettings& settings) {
  return {
      model_option(settings.model),
      optimizer_option(settings.model),
      loss_option(settings.model),
      metrics_option(settings.model),
      {.name = "train-steps",
       .metavar = "N",
       .help =
           "optimizer steps to train instead of --epochs: one\nepoch, or as many as --steps-per-epoch makes of them",
       .shown_default = "off",
       .set = [&settings](const OptionValue& given) { settings.train_steps = read_whole(given, 1); }},
      {.name = "validation-split",
       .metavar = "X",
       .help = "fraction at the end of the training data, for validation",
       .shown_default = "0",
       .set =
           [&settings](const OptionValue& given) {
             const auto is_allowed = [](double number) { return number >= 0 && number < 1; };
             settings.validation_split = read_number(given, is_allowed, "at least 0 and less than 1");
           }},
      {.name = "validation-freq",
       .metavar = "N",
       .help = "validate after every Nth epoch only",
       .shown_default = "1",
       .set = [&settings](const OptionValue& given) { settings.validation_freq = read_whole(given, 1); }},
      {.name = "early-stopping",
       .metavar = "N",
       .help = "stop after N epochs without a better val_loss (or loss)",
       .shown_default = "off",
       .set = [&settings](const OptionValue& given) { settings.early_stopping = read_whole(given, 0); }},
      {.name = "early-stopping-min-delta",
       .metavar = "X",
       .help = "with --early-stopping: how much better a loss must be",
       .shown_default = "0",
       .set =
           [&settings](const OptionValue& given) {
             const auto is_allowed = [](double number) { return number >= 0 && std::isfinite(number); };
             settings.early_stopping_min_delta = read_number(given, is_allowed, "at least 0");
           }},
      {.name = "save-as",
       .metavar = "NAME",
       .help = "name of the trained model in MODEL_DIR",
       .shown_default = "model.h5 or model.keras",
       .set =
           [&settings](const OptionValue& given) {
             const std::filesystem::path file = given.value;
             if (file.has_parent_path() || !is_model_file_name(file)) {
               refuse(given, "a file name ending in .keras, .h5, .hdf5 or .weights.h5, in --model-dir");
             }
             if (!is_utf8(given.value)) refuse(given, "in UTF-8, because history.json names the model");
             settings.save_as = given.value;
           }},
      {.name = "csv-log",
       .metavar = "FILE",
       .help = "one line per epoch, as Keras' CSVLogger writes it",
       .shown_default = "none",
       .set = [&settings](const OptionValue& given) { settings.csv_log = given.value; }},
      {.name = "tensorboard-dir",
       .metavar = "PATH",
       .help = "curves for TensorBoard",
       .shown_default = "none",
       .set = [&settings](const OptionValue& given) { settings.tensorboard_dir = given.value; }},
  };
}

std::filesystem::path output_path(const TrainSettings& settings, const Options& options) {
  if (!settings.save_as.empty()) return options.model_dir / settings.save_as;
  return options.model_dir / (settings.model.model.extension() == ".keras" ? "model.keras" : "model.h5");
}

namespace {

/// Throws UsageError or IoError now rather than after training.
void check_outputs(const TrainSettings& settings, const Options& options, const std::filesystem::path& model) {
  if (is_backup_name(model)) {
    throw UsageError(fmt::format("--save-as {} is the name of a backup, which is removed in the end; choose another",
                                 settings.save_as));
  }
  const std::array outputs{NamedFile{settings.save_as.empty() ? "--model-dir" : "--save-as", model},
                           NamedFile{"--model-dir", options.model_dir / "history.json"},
                           NamedFile{"--model-dir", options.model_dir / "report.html"},
                           NamedFile{"--backup-dir", options.backup_dir, true},
                           NamedFile{"--tensorboard-dir", settings.tensorboard_dir, true},
                           NamedFile{"--csv-log", settings.csv_log}};
  require_distinct(options,
                   {{"--model", settings.model.model},
                    {"--model-dir", options.model_dir / ".lockstep.lock"},
                    {"--backup-dir", options.backup_dir / ".lockstep.lock"}},
                   outputs);
  require_regular({"--csv-log", settings.csv_log});
  require_writable(model);
  for (const char* record : {"history.json", "report.html"}) require_writable(options.model_dir / record);
}

/// The epochs of --train-steps. Throws UsageError if they are not whole.
void apply_train_steps(const TrainSettings& settings, Options& options) {
  if (settings.train_steps == 0) return;
  if (options.epochs != Options().epochs)
    throw UsageError("--train-steps and --epochs both say how long to train; leave one of them out");
  if (options.steps_per_epoch == 0) options.steps_per_epoch = settings.train_steps;
  if (settings.train_steps % options.steps_per_epoch != 0) {
    throw UsageError(
        fmt::format("--train-steps is {}, which is no multiple of --steps-per-epoch, {}; change one of them",
                    settings.train_steps, options.steps_per_epoch));
  }
  options.epochs = settings.train_steps / options.steps_per_epoch;
}

std::vector<Dataset*> datasets_of(TrainTestSplit& data) {
  std::vector<Dataset*> datasets{&data.train};
  if (data.test.size() > 0) datasets.push_back(&data.test);
  if (data.validation) datasets.push_back(&*data.validation);
  return datasets;
}

/// The data, its targets in the form that the losses take. Throws UsageError or DataError if the model cannot take it.
TrainTestSplit load_data_for(const Architecture& model, const CompileOptions& compile_options,
                             const TrainSettings& settings, const Options& options, bool& made_one_hot) {
  TrainTestSplit data = load_dataset(options.data_dir, array_names(model), TestSet::optional);
  if (data.validation && settings.validation_split > 0) {
    throw UsageError(fmt::format("--validation-split is {}, but {} has a validation set, x_val; leave one of them out",
                                 settings.validation_split, options.data_dir.string()));
  }
  for (Dataset* dataset : datasets_of(data)) {
    check_inputs(*dataset, options, model);
    made_one_hot |= convert_targets(*dataset, compile_options, model);
  }
  return data;
}

}  // namespace

void train(std::span<const std::string> args) {
  TrainSettings settings;
  Options options = parse_or_exit(args, {.program = train_program}, train_options(settings),
                                  {.sentence = "Trains a Keras model on all workers"});
  apply_train_steps(settings, options);
  require_model(settings.model, train_program);
  require_data_dir(options, train_program);
  if (settings.early_stopping_min_delta && !settings.early_stopping) {
    throw UsageError("--early-stopping-min-delta goes with --early-stopping; see lockstep train --help");
  }
  const std::filesystem::path output = output_path(settings, options);
  MultiWorkerMirroredStrategy strategy{options};
  if (strategy.is_chief()) check_outputs(settings, options, output);

  TrainTestSplit data;
  bool made_one_hot = false;
  Model model = strategy.load_model(settings.model.model, [&](const Architecture& architecture, const auto& saved) {
    CompileOptions compile_options = resolve_compile_options(settings.model, architecture, saved, true);
    data = load_data_for(architecture, compile_options, settings, options, made_one_hot);
    return compile_options;
  });
  strategy.print("{}", describe(data, options, model.architecture()));
  if (strategy.is_chief()) {
    warn_of_second_scale(options, model.architecture());
    warn_of_crossentropies(*model.compile_options(), model.architecture(), options.clip_probabilities);
    warn_of_target_sums(*model.compile_options(), model.architecture(), data.train, options.clip_probabilities);
    warn_of_repeated_rows(model.compile_options()->optimizer, model.architecture());
    if (made_one_hot) warn_of_one_hot();
  }
  for (const Dataset* dataset : datasets_of(data)) model.validate(*dataset);

  const Dataset* const validation = data.validation ? &*data.validation : nullptr;
  const bool validates = validation != nullptr || settings.validation_split > 0;
  if (!validates && settings.validation_freq != 1) {
    throw UsageError(
        fmt::format("--validation-freq is {}, but {} has no x_val; give --validation-split, or leave it out",
                    settings.validation_freq, options.data_dir.string()));
  }
  model.summary();
  strategy.warn_of_replacing(output);
  model.fit(data.train, {.epochs = options.epochs,
                         .steps_per_epoch = options.steps_per_epoch,
                         .validation_data = validation,
                         .validation_split = settings.validation_split,
                         .validation_freq = settings.validation_freq,
                         .callbacks = callbacks_of(settings, options, validates)});
  std::string line;
  if (data.test.size() > 0) {  // before the model is saved: history.json has it too
    const Logs logs = model.evaluate(data.test);
    line = describe(logs, "test ") + ". ";
    line.front() = 'T';
    if (!std::isfinite(logs.at("loss")) && strategy.is_chief())
      log_warning("the test loss is no finite number: outputs of the model are too large; try a smaller learning rate");
  }
  model.save(output);
  strategy.print("{}Saved {}", line, output.string());
  require_printed();
}

}  // namespace lockstep
