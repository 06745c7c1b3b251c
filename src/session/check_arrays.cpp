// See check_arrays.hpp.
#include "session/check_arrays.hpp"

#include "core/join_words.hpp"
#include "graph/input_numbers.hpp"
#include "layers/input.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/metrics/metrics.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// The axes for numpy.transpose, the first one being that of the examples, that give `given` the shape `wanted`. Empty
/// if no order of its axes does. Axes of one length keep their order.
std::vector<std::size_t> axes_that_give(const Shape& wanted, const Shape& given) {
  const std::span<const std::int64_t> from = given.extents();
  const std::span<const std::int64_t> to = wanted.extents();
  if (!std::ranges::is_permutation(from, to)) return {};
  std::vector<std::size_t> axes{0};
  std::vector<bool> is_taken(from.size());
  for (const std::int64_t extent : to) {
    std::size_t axis = 0;
    while (is_taken[axis] || from[axis] != extent) ++axis;
    is_taken[axis] = true;
    axes.push_back(axis + 1);
  }
  return axes;
}

/// What to do with examples of another shape than the model's input.
std::string remedy_for_shape(const Shape& given, std::size_t examples, const Shape& input) {
  if (const auto axes = axes_that_give(input, given); !axes.empty()) {
    return fmt::format("put the axes into the model's order: numpy.transpose(x, ({}))", fmt::join(axes, ", "));
  }
  std::vector<std::int64_t> whole{static_cast<std::int64_t>(examples)};
  whole.insert(whole.end(), given.extents().begin(), given.extents().end());
  if (is_same_but_for_last_one(Shape(whole), input))
    return "for a single example, give x[None], an array of one example";
  return "reshape or resize the examples, or make the model for their shape";
}

/// "'image' and 'price'".
std::string quoted(const std::vector<std::string>& names) {
  std::vector<std::string> words;
  words.reserve(names.size());
  for (const std::string& name : names) words.push_back("'" + name + "'");
  return join_words(words);
}

/// Throws UsageError for a missing and for a surplus array of the inputs, or of the outputs.
void require_arrays(const std::vector<std::string>& names, const std::vector<std::string>& wanted,
                    const std::string& what, const std::string& data_source) {
  const std::string source = data_source.empty() ? "the data" : data_source;
  if (std::ranges::all_of(names, &std::string::empty)) {
    if (names.size() == wanted.size()) return;
    throw UsageError(fmt::format("the model has {} {}{}, {}, but {} has {} array{}; give one for each {}",
                                 wanted.size(), what, wanted.size() == 1 ? "" : "s", quoted(wanted), source,
                                 names.size(), names.size() == 1 ? "" : "s", what));
  }
  for (const std::string& name : names) {
    if (name.empty()) throw UsageError(fmt::format("{} has arrays with and without a name; name all or none", source));
    if (std::ranges::find(wanted, name) == wanted.end()) {
      throw UsageError(fmt::format("{} has an array '{}', but the model's {}s are {}; leave it out, or rename it",
                                   source, name, what, quoted(wanted)));
    }
    if (std::ranges::count(names, name) > 1) {
      throw UsageError(fmt::format("{} has two arrays '{}'; leave one out", source, name));
    }
  }
  for (const std::string& name : wanted) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw UsageError(
        fmt::format("{} has no array for the model's {} '{}', only {}; add it", source, what, name, quoted(names)));
  }
}

template <typename Array>
std::vector<std::string> names_of(const std::vector<Array>& arrays) {
  std::vector<std::string> names;
  names.reserve(arrays.size());
  for (const Array& array : arrays) names.push_back(array.name);
  return names;
}

std::string name_of_input(const Architecture& model, std::size_t input) {
  return model.inputs().size() == 1 ? "the model's input" : "the model's input '" + model.input_layer(input).name + "'";
}

void check_scale(const Dataset& data, const Architecture& model, double input_scale) {
  bool has_bytes = false;
  bool scales_some = false;
  std::size_t integers = 0;  // an Input of them
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const bool is_bytes = holds_bytes(array_of_input(data, model, i));
    has_bytes |= is_bytes;
    scales_some |= is_bytes && model.input_type(i) == InputType::float32;
    if (is_bytes && model.input_type(i) != InputType::float32) integers = i;
  }
  if (!has_bytes) {
    throw UsageError("--input-scale multiplies bytes, but " +
                     (data.inputs.size() == 1 ? data.label_of(data.input()) : data.source) +
                     " holds other numbers, which are used as they are; leave the option out, or save the inputs as "
                     "uint8");
  }
  if (scales_some || input_scale == 1) return;
  throw UsageError(
      fmt::format("--input-scale multiplies bytes, but {} is {}; leave the option out, or make the Input float32",
                  name_of_input(model, integers), enum_name(model.input_type(integers))));
}

/// The kernel of an Embedding finds wrong indices too, but only when training reaches them. Bytes that are multiplied
/// by `input_scale` are left to it.
void check_indices(const Dataset& data, const Architecture& model, double input_scale) {
  const Architecture flattened = model.flattened();
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const auto [type, embedding, rows] = numbers_of_input(flattened, i);
    if (embedding.empty()) continue;
    const InputArray& array = array_of_input(data, model, i);
    if (input_scale != 1 && holds_bytes(array) && type == InputType::float32) continue;
    const auto check = [&, name = embedding, rows = rows](const auto& values) {
      const auto wrong =
          std::find_if_not(values.begin(), values.end(), [rows](double value) { return is_row(value, rows); });
      if (wrong == values.end()) return;
      throw DataError(
          fmt::format("value {} of {} is {}, but layer '{}' (Embedding) reads whole numbers from 0 to {}; check the "
                      "inputs, or enlarge input_dim",
                      wrong - values.begin(), data.label_of(array), *wrong, name, rows - 1));
    };
    std::visit(check, array.values);
  }
}

/// Losses have the axes of outputs without the last one, which Keras drops first if it is 1 and targets lack it.
void check_weights(const Dataset& data, const TargetArray& target, const Shape& output) {
  const bool has_dense_targets = std::holds_alternative<SharedArray<float>>(target.values);
  const std::size_t rank = has_dense_targets ? std::min(output.rank(), target.shape.rank()) : output.rank();
  if (data.axes_of_weights == 0 || rank < 2 || data.axes_of_weights == rank) return;
  const bool fits_as_column = rank == 2;
  throw DataError(
      fmt::format("Keras 3 aligns the sample weights of {}, of shape {}, with the last axes of the loss, not with the "
                  "examples, because the outputs have the shape {}; {}",
                  data.source, data.axes_of_weights == 1 ? "(n,)" : "(n, 1)", output.to_string(),
                  fits_as_column ? "save them with the shape (n, 1): weights[:, None]"
                                 : "leave them out, or end the model with Flatten()"));
}

/// Throws UsageError or DataError unless an output's targets suit it.
void check_target(const Dataset& data, const TargetArray& array, const OutputOptions& output, const Shape& shape) {
  const std::string source = data.label_of(array);
  const bool wants_classes = takes_classes(output.loss);
  const bool has_classes = std::holds_alternative<SharedArray<std::int32_t>>(array.values);
  if (wants_classes != has_classes) {
    throw UsageError(
        fmt::format("the loss {} takes {}, but {} has {}", keras_name(output.loss),
                    wants_classes ? "class indices" : "dense targets", source,
                    has_classes ? "class indices; give one vector per example"
                                : "dense targets; make class indices of one-hot targets with numpy.argmax(y, axis=-1) "
                                  "and of whole numbers with y.astype('int64'), or use the loss "
                                  "categorical_crossentropy for vectors"));
  }
  if (has_classes && !is_same_but_for_last_one(array.shape, shape_of_classes(shape))) {
    throw DataError(
        fmt::format("{} has class indices of shape {}, but the model's outputs have {}; give one index for "
                    "each vector along the last axis: {}",
                    source, array.shape.to_string(), shape.to_string(), shape_of_classes(shape).to_string()));
  }
  const bool drops_vectors = is_per_vector(output.loss) && shape.rank() > 1 && array.shape != shape;
  if (!has_classes && (drops_vectors || !is_same_but_for_last_one(array.shape, shape))) {
    throw DataError(
        fmt::format("{} has targets of shape {}, but the model's outputs have {}; give targets of the "
                    "outputs' shape, or change the model's last layer",
                    source, array.shape.to_string(), shape.to_string()));
  }
}

/// Whether Keras' metric would compare other numbers if targets lacked the outputs' last axis, of 1. Some functions
/// meet each target with all outputs, and those of vectors would take the axis before it for the last one.
bool needs_last_axis(const Metric& metric, const Shape& output) {
  if (output.rank() > 1 && is_per_vector(metric) && !std::holds_alternative<metrics::Accuracy>(metric)) return true;
  return std::holds_alternative<metrics::Hinge>(metric) || std::holds_alternative<metrics::SquaredHinge>(metric) ||
         std::holds_alternative<metrics::CategoricalHinge>(metric) ||
         std::holds_alternative<metrics::KLDivergence>(metric) || std::holds_alternative<metrics::Poisson>(metric) ||
         std::holds_alternative<metrics::BinaryCrossentropy>(metric) ||
         std::holds_alternative<metrics::F1Score>(metric);
}

void check_metrics(const Dataset& data, const TargetArray& array, const OutputOptions& output, const Shape& shape) {
  if (takes_classes(output.loss) || array.shape.rank() + 1 != shape.rank()) return;
  for (const std::vector<Metric>* list : {&output.metrics, &output.weighted_metrics}) {
    const auto metric =
        std::ranges::find_if(*list, [&shape](const Metric& each) { return needs_last_axis(each, shape); });
    if (metric == list->end()) continue;
    throw DataError(fmt::format(
        "{} has targets of shape {}, which Keras' metric {} does not compare one by one with the outputs, of "
        "shape {}; give targets of the outputs' shape: y[..., None]",
        data.label_of(array), array.shape.to_string(), keras_name(*metric), shape.to_string()));
  }
}

}  // namespace

Shape shape_of_classes(const Shape& output) {
  const std::span<const std::int64_t> extents = output.extents().first(output.rank() - 1);
  return Shape({extents.begin(), extents.end()});
}

bool is_same_but_for_last_one(const Shape& a, const Shape& b) {
  const auto is_longer = [](std::span<const std::int64_t> longer, std::span<const std::int64_t> shorter) {
    return longer.size() == shorter.size() + 1 && longer.back() == 1 &&
           std::ranges::equal(longer.first(shorter.size()), shorter);
  };
  return a == b || is_longer(a.extents(), b.extents()) || is_longer(b.extents(), a.extents());
}

const InputArray& array_of_input(const Dataset& data, const Architecture& model, std::size_t input) {
  const std::string& name = model.input_layer(input).name;
  const auto named = std::ranges::find(data.inputs, name, &InputArray::name);
  return named != data.inputs.end() ? *named : data.inputs.at(input);
}

const TargetArray& array_of_output(const Dataset& data, const Architecture& model, std::size_t output) {
  const std::string& name = model.output_name(output);
  const auto named = std::ranges::find(data.targets, name, &TargetArray::name);
  return named != data.targets.end() ? *named : data.targets.at(output);
}

void require_outputs_of_different_layers(const Architecture& model) {
  for (std::size_t i = 0; i < model.outputs().size(); ++i) {
    const std::string& layer = model.output_layer(i).name;
    if (model.output_name(i) == layer) continue;
    throw UsageError(fmt::format(
        "two outputs are of the layer '{}', so Keras would log their losses under one name; add an Identity layer to "
        "one to train or evaluate the model",
        layer));
  }
}

void require_targets(const Dataset& data, const Architecture& model) {
  require_outputs_of_different_layers(model);
  std::vector<std::string> outputs;
  for (std::size_t i = 0; i < model.outputs().size(); ++i) outputs.push_back(model.output_name(i));
  require_arrays(names_of(data.targets), outputs, "output", data.source);
}

void check_example_shapes(const Dataset& data, const Architecture& model) {
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < model.inputs().size(); ++i) inputs.push_back(model.input_layer(i).name);
  require_arrays(names_of(data.inputs), inputs, "input", data.source);
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const InputArray& array = array_of_input(data, model, i);
    const Shape& wanted = model.input_layer(i).output_shape;
    if (is_same_but_for_last_one(array.shape, wanted)) continue;
    throw DataError(fmt::format("{} takes examples of shape {}, but {} has {}; {}",
                                model.inputs().size() == 1 ? "the model" : name_of_input(model, i), wanted.to_string(),
                                data.label_of(array), array.shape.to_string(),
                                remedy_for_shape(array.shape, data.size(), wanted)));
  }
}

void check_input_numbers(const Dataset& data, const Architecture& model, std::optional<double> input_scale) {
  if (input_scale) check_scale(data, model, *input_scale);
  check_indices(data, model, input_scale.value_or(1));
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const InputType type = model.input_type(i);
    if (type == InputType::float32) continue;
    const InputArray& array = array_of_input(data, model, i);
    const auto check = [&](const auto& values) {
      const auto wrong =
          std::find_if_not(values.begin(), values.end(), [type](auto value) { return fits(value, type); });
      if (wrong == values.end()) return;
      throw DataError(
          fmt::format("value {} of {} is {:.17g}, but {} is {}, which cannot hold it; convert the inputs, or make the "
                      "Input float32",
                      wrong - values.begin(), data.label_of(array), static_cast<double>(*wrong),
                      name_of_input(model, i), enum_name(type)));
    };
    std::visit(check, array.values);
  }
}

void check_data(const Dataset& data, const Architecture& model, std::span<const OutputOptions> outputs,
                std::optional<double> input_scale) {
  check_example_shapes(data, model);
  require_targets(data, model);
  if (data.size() == 0) throw DataError(data.source + " holds no examples");
  std::vector<std::int64_t> classes(outputs.size());  // by array
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TargetArray& array = array_of_output(data, model, i);
    check_target(data, array, outputs[i], model.output_shape(i));
    check_metrics(data, array, outputs[i], model.output_shape(i));
    check_weights(data, array, model.output_shape(i));
    classes[static_cast<std::size_t>(&array - data.targets.data())] = model.output_shape(i).extents().back();
  }
  data.validate(classes);
  check_input_numbers(data, model, input_scale);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TargetArray& array = array_of_output(data, model, i);
    if (const auto* targets = std::get_if<SharedArray<float>>(&array.values))
      check_targets(outputs[i].loss, *targets, data.label_of(array));
  }
}

void check_inputs_alone(const Dataset& data, const Architecture& model, std::optional<double> input_scale) {
  check_example_shapes(data, model);
  data.validate_inputs();
  check_input_numbers(data, model, input_scale);
}

}  // namespace lockstep
