// See model_settings.hpp.
#include "cli/model_settings.hpp"

#include "checkpoint/model_file.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
Value choose(const std::string& option, const std::string& given, const Choices<Value>& choices) {
  std::string names;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (given == choices[i].first) return choices[i].second;
    names += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + choices[i].first;
  }
  throw UsageError(option + " is '" + given + "' but must be " + names + "; see --help");
}

bool ends_in_softmax(const Sequential& model) {
  ActivationFunction last = linear;
  for (const LayerInfo& info : model.layers()) {
    if (const auto* dense = std::get_if<Dense>(&info.layer)) last = dense->activation;
    if (const auto* convolution = std::get_if<Conv2D>(&info.layer)) last = convolution->activation;
    if (const auto* activation = std::get_if<Activation>(&info.layer)) last = activation->function;
  }
  return last == softmax;
}

Loss loss_of(const std::string& name, const Sequential& model) {
  const CrossentropyOptions options{.from_logits = !ends_in_softmax(model)};
  if (name == name_of(Loss(CategoricalCrossentropy()))) return CategoricalCrossentropy(options);
  if (name == name_of(Loss(MeanSquaredError()))) return MeanSquaredError();
  return SparseCategoricalCrossentropy(options);
}

std::string print(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4f", number);
  return text.data();
}

}  // namespace

ProgramOption model_option(ModelSettings& settings) {
  return {.name = "model",
          .value = "FILE",
          .help = ".keras, .h5, or .json from to_json() (random weights)",
          .shown_default = "required",
          .set = [&settings](const std::string& value) { settings.model = value; }};
}

ProgramOption optimizer_option(ModelSettings& settings) {
  return {.name = "optimizer",
          .value = "NAME",
          .help = "sgd, adam, adamw or rmsprop, with Keras' defaults",
          .shown_default = "the file's",
          .set = [&settings](const std::string& value) {
            settings.optimizer = choose<Optimizer>(
                "--optimizer", value, {{"sgd", SGD()}, {"adam", Adam()}, {"adamw", AdamW()}, {"rmsprop", RMSprop()}});
          }};
}

ProgramOption loss_option(ModelSettings& settings) {
  return {.name = "loss",
          .value = "NAME",
          .help =
              "sparse_categorical_crossentropy, categorical_crossentropy (of\n"
              "probabilities if the model ends in softmax, else of logits) or\n"
              "mean_squared_error",
          .shown_default = "the file's",
          .set = [&settings](const std::string& value) {
            Choices<std::string> names;
            for (const Loss& loss :
                 {Loss(SparseCategoricalCrossentropy()), Loss(CategoricalCrossentropy()), Loss(MeanSquaredError())}) {
              names.emplace_back(name_of(loss), name_of(loss));
            }
            settings.loss = choose("--loss", value, names);
          }};
}

ProgramOption metrics_option(ModelSettings& settings) {
  return {
      .name = "metrics",
      .value = "NAME",
      .help = "accuracy or none",
      .shown_default = "the file's",
      .set = [&settings](const std::string& value) {
        settings.metrics = choose<std::vector<Metric>>("--metrics", value, {{"accuracy", {accuracy}}, {"none", {}}});
      }};
}

void check_model_name(const ModelSettings& settings, const std::string& program) {
  if (settings.model.empty()) {
    throw UsageError("--model is missing: name a file that Keras or Lockstep saved; see " + program + " --help");
  }
  if (settings.model.extension() == ".json" || is_model_name(settings.model)) return;
  throw UsageError("--model is '" + settings.model.string() +
                   "', but a model's name ends in .keras, .h5, .hdf5 or .json; save it as one of these");
}

CompileOptions compilation_of(const ModelSettings& settings, const Sequential& model,
                              const std::optional<CompileOptions>& saved, bool trains) {
  if (!saved) {
    std::string missing;
    if (!settings.loss) missing = "--loss";
    if (trains && !settings.optimizer) missing += missing.empty() ? "--optimizer" : " and --optimizer";
    if (!missing.empty()) {
      throw UsageError(settings.model.string() + " is not compiled: give " + missing +
                       ", or save the model after model.compile()");
    }
  }
  CompileOptions chosen = saved.value_or(CompileOptions());
  if (settings.optimizer) chosen.optimizer = *settings.optimizer;
  if (settings.loss) chosen.loss = loss_of(*settings.loss, model);
  const bool classifies = !std::holds_alternative<MeanSquaredError>(chosen.loss);
  if (!saved && classifies) chosen.metrics = {accuracy};
  if (settings.metrics) chosen.metrics = *settings.metrics;
  return chosen;
}

void suit_targets(Dataset& data, const Loss& loss, const Sequential& model) {
  const auto* classes = std::get_if<std::vector<std::int32_t>>(&data.targets);
  if (classes == nullptr || std::holds_alternative<SparseCategoricalCrossentropy>(loss)) return;
  const Shape& output = model.output_shape();
  if (output.elements() == 1) {
    data.targets = std::vector<float>(classes->begin(), classes->end());
    return;
  }
  if (output.rank() != 1) {
    throw UsageError("the targets of " + data.source + " are class indices, but the model's outputs have the shape " +
                     output.to_string() + "; give targets of that shape");
  }
  data.check(output[0]);
  const auto width = static_cast<std::size_t>(output[0]);
  std::vector<float> one_hot(classes->size() * width);
  for (std::size_t i = 0; i < classes->size(); ++i) {
    one_hot[i * width + static_cast<std::size_t>((*classes)[i])] = 1;
  }
  data.targets = std::move(one_hot);
  data.target_shape = output;
}

std::string describe(const Logs& logs, const std::string& prefix, const char* separator) {
  std::string text = prefix + "loss: " + print(logs.at("loss"));
  for (const auto& [name, value] : logs) {
    if (name != "loss") text += separator + prefix + name + ": " + print(value);
  }
  return text;
}

}  // namespace lockstep
