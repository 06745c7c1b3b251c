// See model_settings.hpp.
#include "cli/model_settings.hpp"

#include "checkpoint/model_file.hpp"
#include "core/join_words.hpp"
#include "core/log.hpp"
#include "core/lower_case.hpp"
#include "core/variant_types.hpp"
#include "graph/input_numbers.hpp"
#include "graph/output_options.hpp"
#include "layers/layer_registry.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"
#include "options/read_value.hpp"
#include "report/log_value.hpp"
#include "session/check_arrays.hpp"
#include "session/complete_options.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
std::vector<std::string> names_of(const Choices<Value>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) names.push_back(name);
  return names;
}

/// The value of a choice, or of an alias. The message lists the choices only.
template <typename Value>
Value choose(const OptionValue& given, const Choices<Value>& choices, const Choices<Value>& aliases = {}) {
  for (const Choices<Value>* list : {&choices, &aliases}) {
    for (const auto& [name, value] : *list) {
      if (given.value == name) return value;
    }
  }
  const std::vector<std::string> names = names_of(choices);
  refuse_word(given, given.value, names, join_words(names, "or"));
}

/// Keras' losses by name take whatever an output gives for probabilities. Of a linear output that is hardly meant.
bool gives_probabilities(ActivationFunction last) {
  return last == ActivationFunction::softmax || last == ActivationFunction::sigmoid ||
         last == activations::hard_sigmoid;
}

Loss loss_of(const std::string& name, const Architecture& model, std::size_t output) {
  std::optional<Loss> loss;
  for_each_alternative<Loss>([&]<typename T>(std::type_identity<T>) {
    if (name != LossTraits<T>::function_name) return;
    T chosen;
    if constexpr (requires { chosen.from_logits; })
      chosen.from_logits = !gives_probabilities(last_activation(model, output));
    loss = chosen;
  });
  if (!loss) throw InternalError("no loss is called " + name);
  return *loss;
}

/// Each under its class name in lower case, with Keras' defaults.
Choices<Optimizer> all_optimizers() {
  Choices<Optimizer> all;
  for_each_alternative<Optimizer>(
      [&all]<typename T>(std::type_identity<T>) { all.emplace_back(lower_case(std::string(keras_name(T()))), T()); });
  return all;
}

std::vector<Metric> metrics_of(const OptionValue& given) {
  std::vector<Metric> metrics;
  if (given.value == "none") return metrics;
  for (std::size_t begin = 0; begin <= given.value.size();) {
    const std::size_t end = std::min(given.value.find(',', begin), given.value.size());
    const std::string_view name = std::string_view(given.value).substr(begin, end - begin);
    if (name == "none")
      throw UsageError(fmt::format("{} is '{}', but none stands alone; leave it out", given.source, given.value));
    std::vector<std::string> names;
    const std::size_t before = metrics.size();
    for_each_alternative<Metric>([&]<typename T>(std::type_identity<T>) {
      if constexpr (!requires { MetricTraits<T>::needs_options; }) {
        names.emplace_back(MetricTraits<T>::name);
        if (!is_name_of<T>(name)) return;
        T metric;
        if (name != MetricTraits<T>::name) metric.name = name;
        metrics.emplace_back(std::move(metric));
      }
    });
    names.emplace_back("none");
    if (metrics.size() == before)
      refuse_word(given, name, names, "names with commas between them, each " + join_words(names, "or"));
    begin = end + 1;
  }
  return metrics;
}

}  // namespace

ProgramOption model_option(ModelSettings& settings) {
  return {.name = "model",
          .metavar = "FILE",
          .help = ".keras, .h5, or .json from to_json() (random weights)",
          .shown_default = "required",
          .set = [&settings](const OptionValue& given) {
            const std::filesystem::path file = given.value;
            if (file.extension() != ".json" && !is_model_file_name(file)) {
              refuse(given, "a file whose name ends in .keras, .h5, .hdf5 or .json");
            }
            settings.model = file;
          }};
}

namespace {

/// A list of names as lines of a help text.
std::string one_a_line(std::string names) {
  for (std::size_t at = 0; (at = names.find(", ", at)) != std::string::npos;) names[at + 1] = '\n';
  return names;
}

}  // namespace

ProgramOption optimizer_option(ModelSettings& settings) {
  const Choices<Optimizer> optimizers = all_optimizers();
  return {.name = "optimizer",
          .metavar = "NAME",
          .help = one_a_line(join_words(names_of(optimizers), "or")) + ",\nwith Keras' defaults",
          .shown_default = "the file's",
          .set = [&settings, optimizers](const OptionValue& given) { settings.optimizer = choose(given, optimizers); }};
}

ProgramOption loss_option(ModelSettings& settings) {
  Choices<std::string> losses;
  Choices<std::string> aliases;
  for_each_alternative<Loss>([&]<typename T>(std::type_identity<T>) {
    using Traits = LossTraits<T>;
    losses.emplace_back(Traits::function_name, Traits::function_name);
    for (const std::string_view alias : Traits::aliases) aliases.emplace_back(alias, Traits::function_name);
  });
  return {.name = "loss",
          .metavar = "NAME",
          .help = one_a_line(join_words(names_of(losses), "or")) +
                  ";\ncrossentropies: of probabilities if the model\nends in softmax or a sigmoid, else of logits",
          .shown_default = "the file's",
          .set = [&settings, losses, aliases](const OptionValue& given) {
            settings.loss = choose(given, losses, aliases);
          }};
}

ProgramOption metrics_option(ModelSettings& settings) {
  return {.name = "metrics",
          .metavar = "NAME[,NAME]",
          .help = "metrics' names in Keras, such as accuracy, or none",
          .shown_default = "the file's",
          .set = [&settings](const OptionValue& given) { settings.metrics = metrics_of(given); }};
}

void require_data_dir(const Options& options, const std::string& program) {
  if (!options.data_dir.empty()) return;
  throw UsageError("--data-dir is missing; name FILE.npz or a directory of IDX files; see " + program + " --help");
}

void require_model(const ModelSettings& settings, const std::string& program) {
  if (!settings.model.empty()) return;
  throw UsageError("--model is missing; name a file that Keras or Lockstep saved; see " + program + " --help");
}

void require_weights(const ModelSettings& settings, const Options& options) {
  if (settings.model.extension() != ".json" || !options.initial_weights.empty()) return;
  throw UsageError(settings.model.string() + " holds no weights; give --initial-weights FILE, or a .keras or .h5 file");
}

CompileOptions resolve_compile_options(const ModelSettings& settings, const Architecture& model,
                                       const std::optional<SavedCompileOptions>& saved, bool trains) {
  require_outputs_of_different_layers(model);
  const auto need = [](const std::string& refusal, const char* option) {
    if (!refusal.empty()) throw DataError(fmt::format("{}, or give {}", refusal, option));
  };
  if (saved) {
    if (trains && !settings.optimizer) need(saved->refusals.optimizer, "--optimizer");
    if (!settings.loss) need(saved->refusals.loss, "--loss");
    if (!settings.loss && !settings.metrics) need(saved->refusals.metrics, "--metrics");
  } else {
    std::string missing;
    if (!settings.loss) missing = "--loss";
    if (trains && !settings.optimizer) missing += missing.empty() ? "--optimizer" : " and --optimizer";
    if (!missing.empty()) {
      throw UsageError(settings.model.string() + " is not compiled; give " + missing +
                       ", or save the model after model.compile()");
    }
  }
  CompileOptions chosen;
  if (saved) chosen = static_cast<const CompileOptions&>(*saved);
  const bool has_metrics = saved && saved->refusals.metrics.empty();
  if (settings.optimizer) chosen.optimizer = *settings.optimizer;
  chosen.outputs = output_options(chosen, model);
  chosen.metrics = chosen.weighted_metrics = {};
  for (std::size_t i = 0; i < chosen.outputs.size(); ++i) {
    OutputOptions& output = chosen.outputs[i];
    if (!has_metrics) output.metrics = output.weighted_metrics = {};
    if (settings.loss) output.loss = loss_of(*settings.loss, model, i);
    if (!has_metrics && is_per_vector(output.loss)) output.metrics = {accuracy};
    if (!settings.metrics) continue;
    output.metrics = *settings.metrics;
    output.weighted_metrics.clear();
  }
  complete(chosen, model);
  return chosen;
}

namespace {

/// Class indices that are floats, as Keras takes them: whole numbers. `output`: the shape of the model's.
void convert_floats_to_classes(TargetArray& target, const Shape& output, const std::string& source) {
  const auto* numbers = std::get_if<SharedArray<float>>(&target.values);
  const Shape wanted = shape_of_classes(output);
  if (numbers == nullptr || target.shape.elements() != wanted.elements()) return;
  if (output.rank() > 1 && !is_same_but_for_last_one(target.shape, wanted)) return;
  if (output.rank() == 1 && target.shape.rank() > 1) {
    throw DataError(
        fmt::format("the targets of {} have the shape {}, but the loss needs one class index for each "
                    "example; give them with y.reshape(-1)",
                    source, target.shape.to_string()));
  }
  std::vector<std::int32_t> classes;
  classes.reserve(numbers->size());
  for (const float number : *numbers) {
    const bool is_whole = number == std::floor(number);
    if (!is_whole || !(std::abs(number) < 1e9F)) {
      throw DataError(
          fmt::format("target {} of {} is {:.10g}, but the loss needs class indices, which are {}; correct the target, "
                      "or leave its example out",
                      classes.size() / elements_of_example(wanted), source, double{number},
                      is_whole ? "below 10^9" : "whole numbers"));
    }
    classes.push_back(static_cast<std::int32_t>(number));
  }
  target.values = std::move(classes);
  target.shape = wanted;
}

/// By what the bytes of the inputs are multiplied without --input-scale, for those that are bytes.
std::vector<double> byte_scales_of(const Dataset& data, const Architecture& model) {
  const Architecture flattened = model.flattened();
  std::vector<double> scales;
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    if (holds_bytes(array_of_input(data, model, i))) scales.push_back(byte_scale_of(flattened, i));
  }
  return scales;
}

}  // namespace

ArrayNames array_names(const Architecture& model) {
  ArrayNames names;
  for (std::size_t i = 0; i < model.inputs().size(); ++i) names.inputs.push_back(model.input_layer(i).name);
  for (std::size_t i = 0; i < model.outputs().size(); ++i) names.targets.push_back(model.output_name(i));
  return names;
}

namespace {

/// `output`: the shape of the model's. Returns whether it made one-hot vectors.
bool convert_target(TargetArray& target, const Loss& loss, const Shape& output, const std::string& source) {
  if (takes_classes(loss)) {
    convert_floats_to_classes(target, output, source);
    return false;
  }
  const auto* classes = std::get_if<SharedArray<std::int32_t>>(&target.values);
  if (classes == nullptr) return false;
  if (output.elements() == 1) {
    target.values = std::vector<float>(classes->begin(), classes->end());
    return false;
  }
  if (output.rank() != 1) {
    throw UsageError("the targets of " + source + " are class indices, but the model's outputs have the shape " +
                     output.to_string() + "; give targets of that shape");
  }
  if (!takes_one_hot(loss)) {
    throw UsageError(
        fmt::format("the loss {} takes targets of the outputs' shape {}, but {} has class indices; give such "
                    "targets, or use the loss sparse_categorical_crossentropy",
                    keras_name(loss), output.to_string(), source));
  }
  require_class_indices(*classes, Shape{}, output[0], source);
  const auto width = static_cast<std::size_t>(output[0]);
  std::vector<float> one_hot(classes->size() * width);
  for (std::size_t i = 0; i < classes->size(); ++i) {
    one_hot[i * width + static_cast<std::size_t>((*classes)[i])] = 1;
  }
  target.values = std::move(one_hot);
  target.shape = output;
  return true;
}

}  // namespace

bool convert_targets(Dataset& data, const CompileOptions& options, const Architecture& model) {
  require_targets(data, model);
  bool made_one_hot = false;
  const std::vector<OutputOptions> outputs = output_options(options, model);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TargetArray& found = array_of_output(data, model, i);
    TargetArray& target = data.targets[static_cast<std::size_t>(&found - data.targets.data())];
    made_one_hot |= convert_target(target, outputs[i].loss, model.output_shape(i), data.label_of(target));
  }
  return made_one_hot;
}

void warn_of_one_hot() {
  log_warning("class indices become one-hot vectors for the loss; Keras refuses them, or compares them otherwise");
}

void check_inputs(const Dataset& data, const Options& options, const Architecture& model) {
  check_example_shapes(data, model);
  const auto is_one = [](double scale) { return scale == 1; };
  if (options.input_scale || std::ranges::all_of(byte_scales_of(data, model), is_one)) return;
  const std::vector<std::filesystem::path> files = dataset_files(options.data_dir);
  const bool holds_arrays = std::ranges::any_of(
      files, [](const auto& file) { return file.extension() == ".npz" || file.extension() == ".npy"; });
  if (!holds_arrays) return;  // pictures of MNIST or CIFAR
  throw UsageError(fmt::format(
      "{} holds bytes, and nothing says how to scale them; give --input-scale 1 (as Keras' fit(x) reads them) or "
      "--input-scale 1/255 (fit(x / 255)), or begin the model with a Rescaling layer",
      data.label_of(*std::ranges::find_if(data.inputs, holds_bytes))));
}

std::optional<double> byte_scale_of(const Dataset& data, const Options& options, const Architecture& model) {
  const std::vector<double> scales = byte_scales_of(data, model);
  if (scales.empty()) return std::nullopt;
  return options.input_scale.value_or(*std::ranges::min_element(scales));
}

std::string describe_bytes(const Dataset& data, const Options& options, const Architecture& model) {
  const std::optional<double> byte_scale = byte_scale_of(data, options, model);
  if (!byte_scale) return "";
  if (*byte_scale == 1 && !options.input_scale)
    return "bytes unscaled because the model has a layer that reads them so";
  const std::string scale = *byte_scale == 1.0 / 255 ? "1/255" : fmt::format("{:g}", *byte_scale);
  return fmt::format("bytes multiplied by {} ({})", scale, options.input_scale ? "--input-scale" : "see --input-scale");
}

void warn_of_second_scale(const Options& options, const Architecture& model) {
  if (!options.input_scale || *options.input_scale == 1) return;
  const Architecture flattened = model.flattened();
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const LayerInfo* const rescaling = rescaling_of_input(flattened, i);
    if (rescaling == nullptr) continue;
    log_warning(
        fmt::format("bytes are multiplied by --input-scale {:g}, and again by layer '{}' (Rescaling); leave the "
                    "option out, unless Keras trains the model on inputs that are scaled before",
                    *options.input_scale, rescaling->name));
    return;
  }
}

std::string describe(const TrainTestSplit& data, const Options& options, const Architecture& model) {
  const Dataset& train = data.train;
  std::string others;
  if (data.validation)
    others += fmt::format("{} {} validation", data.test.size() > 0 ? "," : " and", data.validation->size());
  if (data.test.size() > 0) others += fmt::format(" and {} test", data.test.size());
  std::string shapes;
  for (const InputArray& array : train.inputs) {
    if (!shapes.empty()) shapes += " and ";
    shapes += array.shape.to_string() + (array.name.empty() ? "" : " for '" + array.name + "'");
  }
  std::string text = fmt::format("Data: {} training{} examples of shape {}", train.size(), others, shapes);
  if (const std::string bytes = describe_bytes(train, options, model); !bytes.empty()) text += ", " + bytes;
  return text + ", from " + options.data_dir.string();
}

std::string describe(const Logs& logs, const std::string& prefix, const char* separator) {
  std::string text = fmt::format("{}loss: {}", prefix, log_value(logs.at("loss")));
  for (const auto& [name, value] : logs) {
    if (name != "loss") text += fmt::format("{}{}{}: {}", separator, prefix, name, log_value(value));
  }
  return text;
}

}  // namespace lockstep
