// How `lockstep train` handles its options, a file's compile options and class indices. train_test.py and
// train_mistakes_test.py in tests/programs run the program.
#include "cli/train.hpp"

#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/model_settings.hpp"
#include "core/environment.hpp"
#include "options/other_variables.hpp"
#include "options/shared_options.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;

namespace {

/// Keeps each write apart, as a file without a buffer does.
class Writes : public std::streambuf {
 public:
  [[nodiscard]] const std::vector<std::string>& all() const { return all_; }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize length) override {
    all_.emplace_back(text, static_cast<std::size_t>(length));
    return length;
  }
  int_type overflow(int_type character) override {
    all_.emplace_back(1, traits_type::to_char_type(character));
    return character;
  }

 private:
  std::vector<std::string> all_;
};

struct Parsed {
  TrainSettings settings;
  Options options;
};

Parsed parse(const std::vector<std::string>& args, const Environment& environment = {}) {
  Parsed parsed;
  parsed.options = parse_options(args, environment, {.program = "lockstep train"}, train_options(parsed.settings));
  require_model(parsed.settings.model, "lockstep train");
  return parsed;
}

void require_refused(const std::vector<std::string>& args, const std::vector<std::string>& words,
                     const Environment& environment = {}) {
  std::string message = "accepted";
  try {
    (void)parse(args, environment);
  } catch (const UsageError& error) {
    message = error.what();
  }
  for (const std::string& word : words) {
    INFO("message: " << message << "\nlacks:   " << word);
    CHECK(message.find(word) != std::string::npos);
  }
}

Sequential classifier(ActivationFunction last = linear) {
  return Sequential{Input({4}), Dense(5, {.activation = relu}), Dense(3, {.activation = last})};
}

bool from_logits(const CompileOptions& compile_options) {
  if (const auto* dense = std::get_if<CategoricalCrossentropy>(&compile_options.loss)) return dense->from_logits;
  return std::get<SparseCategoricalCrossentropy>(compile_options.loss).from_logits;
}

ModelSettings settings_of(const std::vector<std::string>& args) {
  std::vector<std::string> all{"--model", "m.h5"};
  all.insert(all.end(), args.begin(), args.end());
  return parse(all).settings.model;
}

template <typename E>
std::string message_of(const ModelSettings& settings, bool trains) {
  try {
    (void)resolve_compile_options(settings, classifier(), {}, trains);
  } catch (const E& error) {
    return error.what();
  }
  return "accepted";
}

Dataset indices(std::vector<std::int32_t> classes) {
  const std::size_t count = classes.size();
  return {Shape{4}, std::vector<float>(4 * count), Shape{}, std::move(classes), "some data"};
}

}  // namespace

TEST_CASE("train parses its own and the common options", "[train]") {
  const Parsed parsed = parse({"--model", "a/m.keras", "--optimizer", "adamw", "--metrics=none", "--validation-split",
                               "0.25", "--validation-freq", "2", "--early-stopping", "0", "--csv-log", "l.csv",
                               "--tensorboard-dir", "tb", "--epochs", "3"},
                              {{"LOCKSTEP_LOSS", "categorical_crossentropy"}, {"LOCKSTEP_OPTIMIZER", "sgd"}});
  CHECK(parsed.options.epochs == 3);
  CHECK(parsed.settings.model.model == "a/m.keras");
  CHECK(keras_name(parsed.settings.model.optimizer.value()) == "AdamW");
  CHECK(parsed.settings.model.loss == "categorical_crossentropy");
  CHECK(parsed.settings.model.metrics.value().empty());
  CHECK(parsed.settings.validation_split == 0.25);
  CHECK(parsed.settings.validation_freq == 2);
  CHECK(parsed.settings.early_stopping == 0);
  CHECK(parsed.settings.csv_log == "l.csv");
  CHECK(parsed.settings.tensorboard_dir == "tb");
  CHECK(parsed.options.program_options.at("optimizer") == "adamw");
  CHECK(parsed.options.program_options.count("save-as") == 0);
}

TEST_CASE("the trained model is named after its input or --save", "[train]") {
  const auto output = [](const std::vector<std::string>& args) {
    const Parsed parsed = parse(args);
    return output_path(parsed.settings, parsed.options).string();
  };
  CHECK(output({"--model", "/x/first.keras"}) == "model/model.keras");
  CHECK(output({"--model", "first.h5", "--model-dir", "/m"}) == "/m/model.h5");
  CHECK(output({"--model", "first.hdf5"}) == "model/model.h5");
  CHECK(output({"--model", "first.json"}) == "model/model.h5");
  CHECK(output({"--model", "first.h5", "--save-as", "second.keras"}) == "model/second.keras");
}

TEST_CASE("train's help fits a terminal", "[train]") {
  std::string help;
  try {
    (void)parse({"--help"});
  } catch (const TextRequest& request) {
    help = request.text;
  }
  CHECK(help.find("Usage: lockstep train [OPTIONS]") != std::string::npos);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 100);
  }
}

TEST_CASE("contradictory train options are rejected", "[train]") {
  require_refused({}, {"--model is missing", "lockstep train --help"});
  require_refused({"--model", "m.onnx"}, {"m.onnx", ".keras, .h5, .hdf5 or .json"});
  require_refused({"--model", "m.h5", "--optimizer", "Adam"}, {"--optimizer is 'Adam'", "sgd, adam, adamw, rmsprop"});
  require_refused({"--model", "m.h5"}, {"LOCKSTEP_OPTIMIZER is 'x'", "sgd, adam, adamw, rmsprop"},
                  {{"LOCKSTEP_OPTIMIZER", "x"}});
  require_refused({"--model", "m.h5", "--loss", "mst"},
                  {"--loss is 'mst'", "mean_squared_error", "or categorical_hinge"});
  require_refused({"--model", "m.h5", "--metrics", "loss"}, {"--metrics is 'loss'", "accuracy", "or none"});
  require_refused({"--model", "m.h5", "--metrics", "f1_score"}, {"--metrics is 'f1_score'"});
  for (const std::string value : {"-0.1", "1", "half", "nan", "0.5x"}) {
    require_refused({"--model", "m.h5", "--validation-split=" + value}, {"--validation-split", "less than 1"});
  }
  for (const std::string value : {"0", "-1", "1.5"}) {
    require_refused({"--model", "m.h5", "--validation-freq=" + value},
                    {"--validation-freq is '" + value, "a whole number of at least 1"});
  }
  for (const std::string value : {"-1", "1.5", "99999999999"}) {
    require_refused({"--model", "m.h5", "--early-stopping=" + value}, {"--early-stopping is '" + value, "at least 0"});
  }
  for (const std::string value : {"-1", "nan", "inf", "x"}) {
    require_refused({"--model", "m.h5", "--early-stopping-min-delta=" + value},
                    {"--early-stopping-min-delta is '" + value, "at least 0"});
  }
  for (const std::string value : {"m.txt", "../m.h5", "/m.h5", "d/m.keras"}) {
    require_refused({"--model", "m.h5", "--save-as", value}, {"--save-as is '" + value, "--model-dir"});
  }
}

TEST_CASE("an uncompiled model requires a loss and an optimizer", "[train]") {
  const std::string remedy = ", or save the model after model.compile()";
  CHECK(message_of<UsageError>(settings_of({}), true) == "m.h5 is not compiled; give --loss and --optimizer" + remedy);
  CHECK(message_of<UsageError>(settings_of({"--optimizer", "sgd"}), true) ==
        "m.h5 is not compiled; give --loss" + remedy);
  CHECK(message_of<UsageError>(settings_of({"--loss", "mean_squared_error"}), true) ==
        "m.h5 is not compiled; give --optimizer" + remedy);
  CHECK(message_of<UsageError>(settings_of({}), false) == "m.h5 is not compiled; give --loss" + remedy);
  CHECK(message_of<UsageError>(settings_of({"--loss", "mean_squared_error"}), false) == "accepted");
}

TEST_CASE("the options of one program are known to all, as variables", "[train]") {
  TrainSettings settings;
  for (const ProgramOption& option : train_options(settings)) {
    CAPTURE(option.name);
    CHECK(is_of_another_program(variable_of_option(option.name)));
  }
  CHECK_FALSE(is_of_another_program("LOCKSTEP_EARLY_STOPPIN"));
}

TEST_CASE("a loss takes probabilities if the model ends in softmax or a sigmoid", "[train]") {
  const ModelSettings settings = settings_of({"--loss", "sparse_categorical_crossentropy", "--optimizer", "sgd"});
  const auto logits = [&](const Sequential& model) {
    return from_logits(resolve_compile_options(settings, model, {}, true));
  };
  CHECK(logits(classifier()));
  CHECK_FALSE(logits(classifier(softmax)));
  CHECK_FALSE(logits(classifier(sigmoid)));
  CHECK_FALSE(logits(classifier(activations::hard_sigmoid)));
  CHECK(logits(classifier(relu)));
  CHECK_FALSE(logits(Sequential{Input({4}), Dense(3), Activation(softmax)}));
  CHECK_FALSE(logits(Sequential{Input({4}), Dense(3, {.activation = softmax}), Reshape({3})}));
  CHECK(logits(Sequential{Input({4}), Dense(3, {.activation = softmax}), Dense(3)}));
  CHECK(logits(Sequential{Input({4}), Flatten()}));
}

TEST_CASE("unset options default to the file's settings", "[train]") {
  const SavedCompileOptions saved{{.optimizer = Adam({.learning_rate = 0.5}),
                                   .loss = CategoricalCrossentropy({.from_logits = false}),
                                   .metrics = {accuracy},
                                   .weighted_metrics = {metrics::MeanAbsoluteError()}}};
  CompileOptions chosen = resolve_compile_options(settings_of({}), classifier(), saved, true);
  CHECK(learning_rate_of(chosen.optimizer).at(0) == 0.5);
  CHECK_FALSE(from_logits(chosen));
  CHECK(chosen.metrics == std::vector<Metric>{accuracy});

  chosen =
      resolve_compile_options(settings_of({"--metrics", "none", "--optimizer", "rmsprop"}), classifier(), saved, true);
  CHECK(keras_name(chosen.optimizer) == "RMSprop");
  CHECK(keras_name(chosen.loss) == "categorical_crossentropy");
  CHECK(chosen.metrics.empty());
  CHECK(chosen.weighted_metrics.empty());

  chosen = resolve_compile_options(settings_of({"--loss", "mean_squared_error"}), classifier(), saved, true);
  CHECK(learning_rate_of(chosen.optimizer).at(0) == 0.5);
  CHECK(keras_name(chosen.loss) == "mean_squared_error");
}

TEST_CASE("options replace what Lockstep lacks of a file's settings", "[train]") {
  SavedCompileOptions saved;
  saved.refusals = {.optimizer = "no Muon", .loss = "no tversky", .metrics = "no f1"};
  const auto resolve = [&](const std::vector<std::string>& args, bool trains) -> std::string {
    try {
      (void)resolve_compile_options(settings_of(args), classifier(), saved, trains);
    } catch (const DataError& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(resolve({}, true) == "no Muon, or give --optimizer");
  CHECK(resolve({}, false) == "no tversky, or give --loss");
  const CompileOptions chosen = resolve_compile_options(settings_of({"--loss", "mse"}), classifier(), saved, false);
  CHECK(keras_name(chosen.loss) == "mean_squared_error");
  CHECK(chosen.metrics.empty());
  saved.refusals.loss.clear();
  CHECK(resolve({}, false) == "no f1, or give --metrics");
  CHECK(resolve_compile_options(settings_of({"--metrics", "none"}), classifier(), saved, false).metrics.empty());
  CHECK(resolve({"--metrics", "mae"}, true) == "no Muon, or give --optimizer");
  CHECK(keras_name(
            resolve_compile_options(settings_of({"--metrics", "mae", "--optimizer", "adam"}), classifier(), saved, true)
                .metrics.front()) == "mae");
}

TEST_CASE("a classifier reports accuracy by default", "[train]") {
  const std::vector<std::string> sgd{"--optimizer", "sgd", "--loss"};
  const auto metrics = [&](std::vector<std::string> args) {
    args.insert(args.begin(), sgd.begin(), sgd.end());
    return resolve_compile_options(settings_of(args), classifier(), {}, true).metrics.size();
  };
  CHECK(metrics({"categorical_crossentropy"}) == 1);
  CHECK(metrics({"mean_squared_error"}) == 0);
  CHECK(metrics({"mean_squared_error", "--metrics", "accuracy"}) == 1);
  CHECK(metrics({"categorical_crossentropy", "--metrics", "none"}) == 0);
}

TEST_CASE("floats that are whole numbers are class indices, for a loss that takes them", "[train]") {
  Dataset data = indices({0, 0, 0});
  data.target().values = std::vector<float>{2, 0, 1};
  data.target().shape = Shape{1};
  convert_targets(data, CompileOptions{.loss = SparseCategoricalCrossentropy()}, classifier());
  CHECK(std::get<SharedArray<std::int32_t>>(data.target().values) == std::vector<std::int32_t>{2, 0, 1});
  CHECK(data.target().shape == Shape{});
  for (const float wrong : {0.5F, 1e10F, std::numeric_limits<float>::quiet_NaN()}) {
    data.target().values = std::vector<float>{2, 0, wrong};
    CHECK_THROWS_AS(convert_targets(data, CompileOptions{.loss = SparseCategoricalCrossentropy()}, classifier()),
                    DataError);
  }
}

TEST_CASE("class indices have one axis, that of the examples", "[train]") {
  Dataset data = indices({0, 0});
  data.target().values = std::vector<float>{2, 0};
  data.target().shape = Shape{1, 1};
  CHECK_THROWS_AS(convert_targets(data, CompileOptions{.loss = SparseCategoricalCrossentropy()}, classifier()),
                  DataError);
}

TEST_CASE("class indices are converted to the loss's targets", "[train]") {
  Dataset data = indices({2, 0});
  convert_targets(data, CompileOptions{.loss = SparseCategoricalCrossentropy()}, classifier());
  CHECK(std::holds_alternative<SharedArray<std::int32_t>>(data.target().values));
  convert_targets(data, CompileOptions{.loss = CategoricalCrossentropy()}, classifier());
  CHECK(std::get<SharedArray<float>>(data.target().values) == std::vector<float>{0, 0, 1, 1, 0, 0});
  CHECK(data.target().shape == Shape{3});
  CHECK(data.size() == 2);
  convert_targets(data, CompileOptions{.loss = MeanSquaredError()},
                  classifier());  // does nothing: the targets are dense already
  CHECK(data.target().shape == Shape{3});

  data = indices({7, -2});
  convert_targets(data, CompileOptions{.loss = MeanSquaredError()}, Sequential{Input({4}), Dense(1)});
  CHECK(std::get<SharedArray<float>>(data.target().values) == std::vector<float>{7, -2});

  data = indices({0, 3});
  CHECK_THROWS_AS(convert_targets(data, CompileOptions{.loss = CategoricalCrossentropy()}, classifier()), DataError);
  data = indices({0, 1});
  CHECK_THROWS_AS(
      convert_targets(data, CompileOptions{.loss = MeanSquaredError()}, Sequential{Input({4}), Reshape({2, 2})}),
      UsageError);
}

TEST_CASE("logs print the loss first", "[train]") {
  CHECK(describe({{"accuracy", 0.5}, {"loss", 1.23456}}) == "loss: 1.2346, accuracy: 0.5000");
  CHECK(describe({{"accuracy", 0.5}, {"loss", 2}}, "test ", "\n") == "test loss: 2.0000\ntest accuracy: 0.5000");
}

TEST_CASE("an error is one write, so that no other process divides its line", "[train]") {
  Writes writes;
  std::ostream err(&writes);
  std::ostringstream out;
  CHECK(run_command_line(std::vector<std::string>{"trian"}, out, err) == ExitCode::usage);
  CHECK(writes.all() == std::vector<std::string>{"error: there is no command 'trian'; did you mean train?\n"});
}

TEST_CASE("commands are listed and accepted only as the first argument", "[train]") {
  std::ostringstream out;
  std::ostringstream err;
  CHECK(run_command_line(std::vector<std::string>{"--help"}, out, err) == ExitCode::success);
  for (const Command& command : commands()) CHECK(out.str().find("\n  " + command.name + " ") != std::string::npos);
  CHECK(run_command_line(std::vector<std::string>{"--", "train"}, out, err) == ExitCode::usage);
  err.str({});
  CHECK(run_command_line(std::vector<std::string>{"trian"}, out, err) == ExitCode::usage);
  CHECK(err.str() == "error: there is no command 'trian'; did you mean train?\n");
  err.str({});
  CHECK(run_command_line(std::vector<std::string>{"fit"}, out, err) == ExitCode::usage);
  CHECK(err.str() == "error: there is no command 'fit'; did you mean train?\n");
  err.str({});
  CHECK(run_command_line(std::vector<std::string>{"sing"}, out, err) == ExitCode::usage);
  CHECK(err.str() == "error: there is no command 'sing'; lockstep --help lists the commands\n");
  out.str({});
  CHECK(run_command_line(std::vector<std::string>{"help"}, out, err) == ExitCode::success);
  CHECK(out.str().find("Commands:") != std::string::npos);
}
