// See train.hpp.
#include "cli/train.hpp"

#include "checkpoint/model_file.hpp"
#include "training/options_parser.hpp"

#include <lockstep/lockstep.hpp>

#include <charconv>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

constexpr const char* train_program = "lockstep train";

template <class Number>
Number read_number(const std::string& option, const std::string& given, Number least, Number below,
                   const std::string& allowed) {
  Number number{};
  const char* end = given.data() + given.size();
  const auto [stop, error] = std::from_chars(given.data(), end, number);
  const bool good = error == std::errc() && stop == end && number >= least && number < below;
  if (!good) throw UsageError(option + " is '" + given + "' but must be " + allowed + "; see --help");
  return number;
}

std::vector<AnyCallback> callbacks_of(const TrainSettings& settings, const Options& options) {
  std::vector<AnyCallback> callbacks;
  if (settings.early_stopping) {
    const char* monitor = settings.validation_split > 0 ? "val_loss" : "loss";
    callbacks.emplace_back(EarlyStopping({.monitor = monitor, .patience = *settings.early_stopping}));
  }
  if (!settings.csv_log.empty()) callbacks.emplace_back(CSVLogger(settings.csv_log));
  if (!settings.tensorboard_dir.empty()) callbacks.emplace_back(TensorBoard({.log_dir = settings.tensorboard_dir}));
  callbacks.emplace_back(BackupAndRestore(options.backup_dir, {.save_freq = options.backup_save_freq}));
  return callbacks;
}

}  // namespace

std::vector<ProgramOption> train_options(TrainSettings& settings) {
  return {
      model_option(settings.model),
      optimizer_option(settings.model),
      loss_option(settings.model),
      metrics_option(settings.model),
      {.name = "validation-split",
       .value = "X",
       .help = "last share of the training data, to validate on each epoch",
       .shown_default = "0",
       .set =
           [&settings](const std::string& value) {
             settings.validation_split =
                 read_number("--validation-split", value, 0.0, 1.0, "at least 0 and less than 1");
           }},
      {.name = "early-stopping",
       .value = "N",
       .help = "stop after N epochs in which val_loss (or loss) got no better",
       .shown_default = "off",
       .set =
           [&settings](const std::string& value) {
             settings.early_stopping =
                 read_number("--early-stopping", value, 0, 1 << 30, "a whole number of at least 0");
           }},
      {.name = "save-as",
       .value = "NAME",
       .help = "name of the trained model in MODEL_DIR",
       .shown_default = "model.h5 or model.keras",
       .set = [&settings](const std::string& value) { settings.save_as = value; }},
      {.name = "csv-log",
       .value = "FILE",
       .help = "a line an epoch, as Keras' CSVLogger writes it",
       .shown_default = "none",
       .set = [&settings](const std::string& value) { settings.csv_log = value; }},
      {.name = "tensorboard-dir",
       .value = "PATH",
       .help = "curves for TensorBoard",
       .shown_default = "none",
       .set = [&settings](const std::string& value) { settings.tensorboard_dir = value; }},
  };
}

void check_settings(const TrainSettings& settings, const std::string& program) {
  check_model_name(settings.model, program);
  const std::filesystem::path file = settings.save_as;
  if (!file.empty() && (file.has_parent_path() || !is_model_name(file))) {
    throw UsageError("--save-as is '" + settings.save_as +
                     "' but must be a file's name that ends in .keras, .h5, .hdf5 or .weights.h5; --model-dir says "
                     "where it goes");
  }
}

std::filesystem::path output_of(const TrainSettings& settings, const Options& options) {
  if (!settings.save_as.empty()) return options.model_dir / settings.save_as;
  return options.model_dir / (settings.model.model.extension() == ".keras" ? "model.keras" : "model.h5");
}

void train(std::span<const std::string> args) {
  TrainSettings settings;
  const Options options = parse_or_exit(args, {.program = train_program}, train_options(settings),
                                        {.sentence = "Trains a model of Keras on every worker of the world"});
  check_settings(settings, train_program);
  MultiWorkerMirroredStrategy strategy{options};

  Model model = strategy.load_model(settings.model.model, [&](const Sequential& architecture, const auto& saved) {
    return compilation_of(settings.model, architecture, saved, true);
  });
  TrainTest data = load_mnist(options.data_dir);
  for (Dataset* part : {&data.train, &data.test}) {
    suit_targets(*part, model.compilation().value().loss, model.architecture());
  }
  model.summary();

  model.fit(data.train, {.epochs = options.epochs,
                         .steps_per_epoch = options.steps_per_epoch,
                         .validation_split = settings.validation_split,
                         .callbacks = callbacks_of(settings, options)});
  const Logs test = model.evaluate(data.test);
  const std::filesystem::path output = output_of(settings, options);
  model.save(output);
  std::string line = describe(test, "test ") + ". Saved " + output.string();
  line.front() = 'T';
  strategy.print(line);
}

}  // namespace lockstep
