// See onnx_lowering.hpp. Starts from the layers, not from the Graph that a backend runs: there, shapes are images,
// scales have moved into the gather of the inputs, and a loss follows. But it reads no layer's type where the layer
// says itself how it lowers: OnnxLowering has the functions that LayerTraits<L>::lower calls, as CallLowering
// has. One file, because these are one class's.
#include "export/onnx_lowering.hpp"

#include "core/range.hpp"
#include "export/onnx_activation.hpp"
#include "export/onnx_builder.hpp"
#include "graph/operation_kind.hpp"
#include "layers/affine.hpp"
#include "layers/layer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

using Integers = std::vector<std::int64_t>;

OnnxType type_of(InputType type) {
  switch (type) {
    case InputType::float32: break;
    case InputType::int32: return OnnxType::int32;
    case InputType::int64: return OnnxType::int64;
    case InputType::uint8: return OnnxType::uint8;
    case InputType::boolean: return OnnxType::boolean;
  }
  return OnnxType::float32;
}

std::string_view operator_of(MergeFunction function) {
  switch (function) {
    case MergeFunction::add: break;
    case MergeFunction::subtract: return "Sub";
    case MergeFunction::multiply: return "Mul";
    case MergeFunction::average: return "Mean";
    case MergeFunction::maximum: return "Max";
    case MergeFunction::minimum: return "Min";
  }
  return "Add";
}

/// Numbers of the axes that windows slide over: of an image two, of a sequence one.
Integers along(const OnnxValue& image, std::int64_t of_rows, std::int64_t of_columns) {
  return image.shape.rank() == 3 ? Integers{of_rows, of_columns} : Integers{of_columns};
}

Windows over(const OnnxValue& image, const Windows& windows) {
  return image.shape.rank() == 3 ? windows.over(image.shape[0], image.shape[1]) : windows.over(1, image.shape[0]);
}

Shape with_channels(const Integers& pixels, std::int64_t channels) {
  Integers extents = pixels;
  extents.push_back(channels);
  return Shape(std::move(extents));
}

std::vector<OnnxAttribute> window_attributes(const OnnxValue& image, const Windows& windows) {
  const auto& [rows, columns] = windows;
  Integers pads = along(image, rows.pad_before(), columns.pad_before());
  const Integers after = along(image, rows.pad_after(), columns.pad_after());
  pads.insert(pads.end(), after.begin(), after.end());
  return {{"kernel_shape", along(image, rows.kernel, columns.kernel)},
          {"strides", along(image, rows.stride, columns.stride)},
          {"pads", std::move(pads)}};
}

/// The smallest factor from which ONNX computes this size, in any precision: the product is rounded down.
float scale_of(std::int64_t input, std::int64_t output) {
  float scale = static_cast<float>(output) / static_cast<float>(input);
  while (static_cast<double>(scale) * static_cast<double>(input) < static_cast<double>(output))
    scale = std::nextafter(scale, std::numeric_limits<float>::infinity());
  return scale;
}

class OnnxLowering {
 public:
  using Kind = OperationKind;

  OnnxLowering(const ModelData& model, int opset)
      : architecture_(model.architecture.flattened()), weights_(model.weights), onnx_(architecture_.name(), opset) {}

  OnnxGraph run() {
    for (std::size_t i = 0; i < architecture_.outputs().size(); ++i) onnx_.reserve(architecture_.output_name(i));
    int parameters = 0;
    for (const LayerInfo& layer : architecture_.layers()) {
      first_parameters_.push_back(parameters);
      parameters += static_cast<int>(layer.parameters.size());
    }
    for (const int call : architecture_.inputs()) add_input(call);
    for (call_ = 0; call_ < architecture_.calls().size(); ++call_) add_call();
    for (std::size_t i = 0; i < architecture_.outputs().size(); ++i)
      onnx_.add_output(values_.at(architecture_.outputs()[i]), architecture_.output_name(i));
    return onnx_.finish();
  }

  // What layers call. The current value is the call's input, and then the output of what they append.

  [[nodiscard]] const Shape& output_shape() const { return call().output_shape; }
  [[nodiscard]] std::int64_t channels() const { return current_.channels(); }
  [[nodiscard]] static bool is_order_absorbed_later() { return false; }

  void append(Kind kind) {
    switch (kind) {
      case Kind::dropout:
      case Kind::noise:
      case Kind::augment: return;  // act in training only
      case Kind::dense: return append_dense();
      case Kind::batch_normalization: return append_batch_normalization();
      case Kind::layer_normalization: return append_layer_normalization();
      case Kind::prelu: return append_prelu();
      case Kind::layer_scale: return scale_channels({0});
      case Kind::pad: return append_pad();
      case Kind::upsample: return append_upsample();
      case Kind::transpose: return append_transpose();
      default: refuse("its operation '" + std::string(to_string(kind)) + "' has no exact form in ONNX");
    }
  }
  void append_channels_last(Kind kind) { append(kind); }
  void append_weighted(Kind kind) { append(kind); }
  void append_elementwise(Kind kind) { append(kind); }

  void activate(ActivationFunction function) {
    const std::optional<OnnxValue> result = add_activation(onnx_, current_, function);
    if (!result) refuse(fmt::format("its activation '{}' has no exact form in ONNX", keras_name(function)));
    current_ = *result;
  }

  void view() { current_ = onnx_.reshape(current_, output_shape()); }

  void append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups) {
    append_convolution(windows, filters, groups, {0, static_cast<int>(info().parameters.size())});
  }
  void append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups,
                          const BasicRange<int>& parameters) {
    const OnnxValue x = onnx_.channels_first(current_);
    const Windows slid = over(x, windows);
    std::vector<OnnxAttribute> attributes = window_attributes(x, slid);
    attributes.push_back({"dilations", along(x, slid.rows.dilation, slid.columns.dilation)});
    attributes.push_back({"group", groups});
    std::vector<std::string> inputs{x.name, kernel(parameters.begin, groups > 1 && groups == x.channels())};
    if (parameters.size() > 1) inputs.push_back(weight(parameters.begin + 1));
    current_ = onnx_.add("Conv", std::move(inputs),
                         with_channels(along(x, slid.rows.output(), slid.columns.output()), filters), x,
                         std::move(attributes));
  }

  /// ONNX adds the products of each cell where the windows over the output are, as Keras does.
  void append_transposed_convolution(const Windows& windows, std::int64_t filters) {
    const OnnxValue x = onnx_.channels_first(current_);
    const bool is_image = x.shape.rank() == 3;
    const Windows slid = windows.transposed_over(is_image ? x.shape[0] : 1, x.shape[is_image ? 1 : 0]);
    const auto missing = [](const Window& window, std::int64_t steps) {
      return window.input - ((steps - 1) * window.stride + window.effective_kernel() - window.pad_total());
    };
    std::vector<OnnxAttribute> attributes = window_attributes(x, slid);
    attributes.push_back({"dilations", along(x, slid.rows.dilation, slid.columns.dilation)});
    attributes.push_back({"output_padding", along(x, is_image ? missing(slid.rows, x.shape[0]) : 0,
                                                  missing(slid.columns, x.shape[is_image ? 1 : 0]))});
    // A kernel of (spatial..., filters, in) becomes (in, filters, spatial...).
    std::vector<std::string> inputs{x.name, kernel(0, false)};
    if (info().parameters.size() > 1) inputs.push_back(weight(1));
    current_ =
        onnx_.add("ConvTranspose", std::move(inputs),
                  with_channels(along(x, slid.rows.input, slid.columns.input), filters), x, std::move(attributes));
  }

  void append_pooling(Kind kind, const Windows& windows) {
    const OnnxValue x = onnx_.channels_first(current_);
    const Windows slid = over(x, windows);
    current_ = onnx_.add(kind == Kind::max_pooling ? "MaxPool" : "AveragePool", {x.name},
                         with_channels(along(x, slid.rows.output(), slid.columns.output()), channels()), x,
                         window_attributes(x, slid));
  }

  void append_global_pooling(Kind kind) {
    const OnnxValue x = onnx_.channels_first(current_);
    const Shape kept = with_channels(along(x, 1, 1), channels());
    current_ = onnx_.add(kind == Kind::global_max_pooling ? "GlobalMaxPool" : "GlobalAveragePool", {x.name}, kept, x);
    if (output_shape().rank() > 1) return;
    current_.channels_first = false;  // of one pixel, both orders are the same in memory
    current_ = onnx_.reshape(current_, output_shape());
  }

  void append_merge(MergeFunction function, std::optional<std::size_t> scaled = {}) {
    std::vector<OnnxValue> operands = read_operands();
    if (scaled) {
      OnnxValue& operand = operands[*scaled];
      operand = onnx_.add("Mul", operand, {onnx_.scalar(affine_of(info().layer).scale.front())});
    }
    const std::string op_type(operator_of(function));
    if (function == MergeFunction::average || function == MergeFunction::maximum ||
        function == MergeFunction::minimum) {
      current_ = onnx_.add(op_type, names_of(operands), output_shape(), operands.front());
      return;
    }
    current_ = operands.front();
    for (const OnnxValue& next : std::span(operands).subspan(1)) {
      std::vector<std::int64_t> extents;
      for (std::size_t axis = 0; axis < next.shape.rank(); ++axis)
        extents.push_back(std::max(current_.shape[axis], next.shape[axis]));
      current_ = onnx_.add(op_type, {current_.name, next.name}, Shape(std::move(extents)), current_);
    }
  }

  void append_concatenate(std::size_t axis) {
    const std::vector<OnnxValue> operands = read_operands();
    const OnnxValue& first = operands.front();
    current_ = onnx_.add("Concat", names_of(operands), output_shape(), first, {{"axis", first.onnx_axis(axis)}});
  }

  /// Each axis has a letter: z is the batch's, and the summed ones share theirs.
  void append_dot(DotAxes axes) {
    std::string equation;
    std::string kept = "z";
    std::vector<std::string> inputs;
    char letter = 'b';
    for (std::size_t i = 0; i < 2; ++i) {
      OnnxValue operand = onnx_.channels_last(operand_of(call().inputs[i]));
      const std::size_t summed = example_axis(i == 0 ? axes.first : axes.second, operand.shape.rank());
      if (std::get<Dot>(info().layer).normalize) operand = unit_vectors(operand, summed);
      equation += i == 0 ? "z" : ",z";
      for (std::size_t axis = 0; axis < operand.shape.rank(); ++axis) {
        equation += axis == summed ? 'a' : letter;
        if (axis != summed) kept += letter++;
      }
      inputs.push_back(operand.name);
    }
    const bool is_number = kept == "z";
    const Shape shape = is_number ? Shape() : output_shape();
    current_ = onnx_.add("Einsum", std::move(inputs), shape, OnnxValue(), {{"equation", equation + "->" + kept}});
    if (is_number) view();
  }

  void rescale(double scale, double offset) {
    if (scale != 1) current_ = onnx_.add("Mul", current_, {onnx_.scalar(static_cast<float>(scale))});
    if (offset != 0) current_ = onnx_.add("Add", current_, {onnx_.scalar(static_cast<float>(offset))});
  }

  /// A Normalization, in the order of Keras' operations.
  void append_affine() {
    const auto* layer = std::get_if<Normalization>(&info().layer);
    if (layer == nullptr) refuse("its constants have no exact form in ONNX");
    const auto constants = [&](const std::vector<double>& given, int parameter) {
      return given.empty() ? values_of(parameter) : std::vector<float>(given.begin(), given.end());
    };
    std::vector<float> deviation = constants(layer->variance, 1);
    for (float& value : deviation) value = std::max(std::sqrt(value), 1e-7F);
    const std::string mean = onnx_.per_channel("mean", constants(layer->mean, 0), current_);
    const std::string scale = onnx_.per_channel("deviation", std::move(deviation), current_);
    current_ = layer->invert ? onnx_.add("Add", onnx_.add("Mul", current_, {scale}), {mean})
                             : onnx_.add("Div", onnx_.add("Sub", current_, {mean}), {scale});
  }

  void append_embedding() {
    const bool is_index = current_.type == OnnxType::int32 || current_.type == OnnxType::int64;
    const OnnxValue indices = is_index ? current_ : onnx_.cast(current_, OnnxType::int64);
    current_ = onnx_.add("Gather", {weight(0), indices.name}, output_shape(), OnnxValue(), {{"axis", std::int64_t{0}}});
  }

  void append_encoding() {
    auto mode = OutputMode::integer;
    std::int64_t depth = 0;
    if (const auto* bins = std::get_if<Discretization>(&info().layer)) {
      mode = bins->output_mode;
      depth = static_cast<std::int64_t>(bins->bin_boundaries.size()) + 1;
      discretize(bins->bin_boundaries);
    } else {
      const auto& encoding = std::get<CategoryEncoding>(info().layer);
      mode = encoding.output_mode;
      depth = encoding.num_tokens;
    }
    if (mode == OutputMode::integer) return;
    const std::span<const std::int64_t> extents = output_shape().extents();
    if (mode == OutputMode::one_hot) {
      const Shape places(Integers(extents.begin(), extents.end() - 1));
      current_ = one_hot(onnx_.reshape(current_, places), depth);
      return;
    }
    current_ = onnx_.reduce(mode == OutputMode::count ? "ReduceSum" : "ReduceMax", one_hot(current_, depth), {1},
                            output_shape(), false);
  }

 private:
  [[nodiscard]] const LayerCall& call() const { return architecture_.calls()[call_]; }
  [[nodiscard]] const LayerInfo& info() const { return architecture_.layers()[call().layer]; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(fmt::format("the layer '{}' ({}) cannot be exported: {}", info().name, info().class_name, why));
  }

  void add_input(int call) {
    const LayerInfo& layer = architecture_.layers()[architecture_.calls()[call].layer];
    values_[call] = onnx_.add_input(layer.name, architecture_.calls()[call].output_shape,
                                    type_of(std::get<Input>(layer.layer).dtype));
  }

  void add_call() {
    if (call().inputs.empty()) return;
    onnx_.begin_layer(info().name);
    current_ = values_.at(call().inputs.front());
    const bool takes_any = keeps_numbers(info().layer) || std::holds_alternative<Embedding>(info().layer);
    if (!takes_any) current_ = onnx_.cast(current_, OnnxType::float32);
    std::visit([this]<typename L>(const L& any) { LayerTraits<L>::lower(any, *this); }, info().layer);
    values_[static_cast<int>(call_)] = current_;
  }

  [[nodiscard]] const std::vector<float>& values_of(int parameter) const {
    return weights_[static_cast<std::size_t>(first_parameters_[call().layer] + parameter)].values;
  }

  /// The constant of a weight that is stored as in Keras.
  std::string weight(int parameter) {
    const ParameterInfo& stored = info().parameters[parameter];
    return onnx_.shared(info().name + "/" + stored.name, [&] {
      return onnx_.floats(stored.name, {stored.shape.extents().begin(), stored.shape.extents().end()},
                          values_of(parameter));
    });
  }

  /// A kernel of (spatial..., in, out) as (out, in, spatial...), a depthwise one of (spatial..., channels, multiplier)
  /// as (channels multiplier, 1, spatial...).
  std::string kernel(int parameter, bool may_be_depthwise) {
    const ParameterInfo& stored = info().parameters[parameter];
    const Shape& shape = stored.shape;
    const std::size_t rank = shape.rank();
    const bool is_depthwise = may_be_depthwise && shape[rank - 2] > 1;
    AxisOrder order{rank - 1, rank - 2};
    if (is_depthwise) std::swap(order[0], order[1]);
    for (std::size_t axis = 0; axis + 2 < rank; ++axis) order.push_back(axis);
    Integers dims;
    for (const std::size_t axis : order) dims.push_back(shape[axis]);
    if (is_depthwise) dims[0] *= std::exchange(dims[1], 1);
    return onnx_.shared(info().name + "/" + stored.name, [&] {
      return onnx_.floats(stored.name, std::move(dims), permuted(values_of(parameter), shape, order));
    });
  }

  OnnxValue operand_of(int call) { return onnx_.cast(values_.at(call), OnnxType::float32); }

  /// The tensors that the call reads, in one order: channels first if one of them is so.
  std::vector<OnnxValue> read_operands() {
    std::vector<OnnxValue> operands;
    for (const int input : call().inputs) operands.push_back(operand_of(input));
    const bool first = std::ranges::any_of(operands, &OnnxValue::channels_first);
    for (OnnxValue& operand : operands) {
      if (first) operand = onnx_.channels_first(operand);
    }
    return operands;
  }

  static std::vector<std::string> names_of(const std::vector<OnnxValue>& values) {
    std::vector<std::string> names(values.size());
    std::ranges::transform(values, names.begin(), &OnnxValue::name);
    return names;
  }

  void append_dense() {
    current_ = onnx_.channels_last(current_);
    current_ = onnx_.add("MatMul", {current_.name, weight(0)}, output_shape(), current_);
    if (info().parameters.size() > 1) current_ = onnx_.add("Add", current_, {weight(1)});
  }

  /// Multiplies each channel by a weight, and adds another to it, if the layer has them.
  void scale_channels(const std::vector<int>& parameters) {
    for (const int parameter : parameters) {
      const ParameterInfo& stored = info().parameters[parameter];
      const std::string values = onnx_.per_channel(stored.name, values_of(parameter), current_);
      current_ = onnx_.add(stored.name == "beta" ? "Add" : "Mul", current_, {values});
    }
  }

  void append_batch_normalization() {
    const auto& layer = std::get<BatchNormalization>(info().layer);
    const OnnxValue x = onnx_.channels_first(current_);
    const auto channel_count = static_cast<std::size_t>(channels());
    int next = 0;
    const auto weight_or = [&](bool has, const char* what, float value) {
      if (has) return weight(next++);
      return onnx_.floats(what, {channels()}, std::vector<float>(channel_count, value));
    };
    std::vector<std::string> constants{weight_or(layer.scale, "gamma", 1), weight_or(layer.center, "beta", 0)};
    constants.push_back(weight(next));
    constants.push_back(weight(next + 1));
    current_ =
        onnx_.add("BatchNormalization", x, std::move(constants), {{"epsilon", static_cast<float>(layer.epsilon)}});
  }

  void append_layer_normalization() {
    std::visit(
        [this]<typename L>(const L& layer) {
          if constexpr (std::is_same_v<L, LayerNormalization>) {
            normalize_channels(layer);
          } else if constexpr (std::is_same_v<L, GroupNormalization>) {
            normalize_groups(layer);
          } else if constexpr (std::is_same_v<L, RMSNormalization>) {
            divide_by_root_mean_square(layer.epsilon);
          } else if constexpr (std::is_same_v<L, UnitNormalization>) {
            current_ = unit_vectors(current_, current_.shape.rank() - 1);
          } else {
            refuse("its normalization has no exact form in ONNX");
          }
        },
        info().layer);
  }

  void normalize_channels(const LayerNormalization& layer) {
    const OnnxValue x = onnx_.channels_last(current_);
    const std::string gamma =
        layer.scale ? weight(0)
                    : onnx_.floats("gamma", {channels()}, std::vector<float>(static_cast<std::size_t>(channels()), 1));
    std::vector<std::string> constants{gamma};
    if (layer.center) constants.push_back(weight(layer.scale ? 1 : 0));
    current_ = onnx_.add("LayerNormalization", x, std::move(constants),
                         {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(layer.epsilon)}});
  }

  /// Each group of channels is one channel of an InstanceNormalization.
  void normalize_groups(const GroupNormalization& layer) {
    const OnnxValue x = onnx_.channels_first(current_);
    const std::int64_t groups = layer.groups == -1 ? channels() : layer.groups;
    const Integers dims{-1, groups, x.shape.elements() / groups};
    OnnxValue grouped = onnx_.add("Reshape", {x.name, onnx_.integers(dims)}, x.shape, x);
    const auto count = static_cast<std::size_t>(groups);
    grouped = onnx_.add("InstanceNormalization", grouped,
                        {onnx_.floats("ones", {groups}, std::vector<float>(count, 1)),
                         onnx_.floats("zeros", {groups}, std::vector<float>(count, 0))},
                        {{"epsilon", static_cast<float>(layer.epsilon)}});
    const std::span<const std::int64_t> extents = x.shape.extents();
    const Integers back = x.in_order<std::int64_t>(-1, {extents.begin(), extents.end()});
    current_ = onnx_.add("Reshape", {grouped.name, onnx_.integers(back)}, x.shape, x);
    std::vector<int> parameters(info().parameters.size());
    std::iota(parameters.begin(), parameters.end(), 0);
    scale_channels(parameters);
  }

  void divide_by_root_mean_square(double epsilon) {
    const OnnxValue x = onnx_.channels_last(current_);
    const OnnxValue squares = onnx_.reduce("ReduceMean", onnx_.add("Mul", x, {x.name}), {-1}, x.shape, true);
    const OnnxValue root = onnx_.add("Sqrt", onnx_.add("Add", squares, {onnx_.scalar(static_cast<float>(epsilon))}));
    current_ = onnx_.add("Mul", onnx_.add("Div", x, {root.name}), {weight(0)});
  }

  /// Divides by the length along an axis of the example.
  OnnxValue unit_vectors(const OnnxValue& x, std::size_t axis) {
    constexpr float epsilon = 1e-12F;  // of Keras' normalize()
    const OnnxValue squares =
        onnx_.reduce("ReduceSum", onnx_.add("Mul", x, {x.name}), {x.onnx_axis(axis)}, x.shape, true);
    const OnnxValue length = onnx_.add("Max", onnx_.add("Sqrt", squares), {onnx_.scalar(epsilon)});
    return onnx_.add("Div", x, {length.name});
  }

  void append_prelu() {
    const Shape& shape = info().parameters[0].shape;
    if (!current_.channels_first) {
      current_ = onnx_.add("PRelu", current_, {weight(0)});
      return;
    }
    AxisOrder order{shape.rank() - 1};
    for (std::size_t axis = 0; axis + 1 < shape.rank(); ++axis) order.push_back(axis);
    Integers dims;
    for (const std::size_t axis : order) dims.push_back(shape[axis]);
    const std::string alpha = onnx_.shared(info().name + "/alpha of channels first", [&] {
      return onnx_.floats("alpha", std::move(dims), permuted(values_of(0), shape, order));
    });
    current_ = onnx_.add("PRelu", current_, {alpha});
  }

  void append_pad() {
    const OnnxValue& x = current_;
    const bool is_image = x.shape.rank() == 3;
    const Margins2D margins = added_margins(info().layer, is_image ? x.shape[0] : 1, x.shape[is_image ? 1 : 0]);
    Integers before = along(x, margins.top, margins.left);
    Integers after = along(x, margins.bottom, margins.right);
    const bool crops = std::ranges::any_of(before, [](auto cells) { return cells < 0; }) ||
                       std::ranges::any_of(after, [](auto cells) { return cells < 0; });
    if (!crops) {
      before.push_back(0);  // of the channels
      after.push_back(0);
      Integers pads = x.in_order<std::int64_t>(0, before);
      const Integers ends = x.in_order<std::int64_t>(0, after);
      pads.insert(pads.end(), ends.begin(), ends.end());
      current_ = onnx_.add("Pad", {x.name, onnx_.integers(pads)}, output_shape(), x);
      return;
    }
    Integers starts;
    Integers ends;
    Integers axes;
    for (std::size_t axis = 0; axis < before.size(); ++axis) {
      starts.push_back(-before[axis]);
      ends.push_back(x.shape[axis] + after[axis]);
      axes.push_back(x.onnx_axis(axis));
    }
    current_ = onnx_.add("Slice", {x.name, onnx_.integers(starts), onnx_.integers(ends), onnx_.integers(axes)},
                         output_shape(), x);
  }

  void append_upsample() {
    if (const auto* repeat = std::get_if<RepeatVector>(&info().layer)) {
      const OnnxValue one = onnx_.reshape(current_, Shape{1, channels()});
      current_ = onnx_.add("Expand", {one.name, onnx_.integers({1, repeat->n, 1})}, output_shape(), one);
      return;
    }
    const auto interpolation = std::visit(
        []<typename L>(const L& layer) {
          if constexpr (requires { layer.interpolation; }) return layer.interpolation;
          return Interpolation::nearest;
        },
        info().layer);
    const bool is_bilinear = interpolation == Interpolation::bilinear;
    if (!is_bilinear && std::holds_alternative<Resizing>(info().layer)) return pick_nearest_pixels();
    const OnnxValue x = onnx_.channels_first(current_);
    std::vector<float> scales;
    for (std::size_t axis = 0; axis < x.shape.rank(); ++axis)
      scales.push_back(scale_of(x.shape[axis], output_shape()[axis]));
    scales = x.in_order(1.0F, scales);
    const auto count = static_cast<std::int64_t>(scales.size());
    std::vector<OnnxAttribute> attributes{{"mode", std::string(is_bilinear ? "linear" : "nearest")}};
    attributes.push_back({"coordinate_transformation_mode", std::string(is_bilinear ? "half_pixel" : "asymmetric")});
    if (!is_bilinear) attributes.push_back({"nearest_mode", std::string("floor")});
    current_ = onnx_.add("Resize", {x.name, "", onnx_.floats("scales", {count}, std::move(scales))}, output_shape(), x,
                         std::move(attributes));
  }

  /// By their indices, because which pixel is the nearest at a tie follows from Keras' rounding.
  void pick_nearest_pixels() {
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const OnnxValue x = current_;
      const std::int64_t size = output_shape()[axis];
      if (size == x.shape[axis]) continue;
      const float scale = static_cast<float>(x.shape[axis]) / static_cast<float>(size);
      Integers nearest;
      for (std::int64_t i = 0; i < size; ++i) {
        const float center = (static_cast<float>(i) + 0.5F) * scale;
        nearest.push_back(std::min(static_cast<std::int64_t>(std::floor(center)), x.shape[axis] - 1));
      }
      Integers extents(x.shape.extents().begin(), x.shape.extents().end());
      extents[axis] = size;
      current_ = onnx_.add("Gather", {x.name, onnx_.integers(nearest)}, Shape(std::move(extents)), x,
                           {{"axis", x.onnx_axis(axis)}});
    }
  }

  void append_transpose() {
    const OnnxValue x = onnx_.channels_last(current_);
    Integers order{0};  // the batch
    for (const int axis : std::get<Permute>(info().layer).dims) order.push_back(axis);
    current_ = onnx_.add("Transpose", {x.name}, output_shape(), x, {{"perm", std::move(order)}});
  }

  /// Replaces each number by how many boundaries are not above it.
  void discretize(const std::vector<double>& boundaries) {
    const Shape shape = current_.shape;
    Integers extents(shape.extents().begin(), shape.extents().end());
    extents.push_back(1);
    const OnnxValue numbers = onnx_.reshape(current_, Shape(std::move(extents)));
    const std::string bounds = onnx_.floats("bin_boundaries", {static_cast<std::int64_t>(boundaries.size())},
                                            {boundaries.begin(), boundaries.end()});
    OnnxValue reached = onnx_.add("GreaterOrEqual", numbers, {bounds});
    reached.type = OnnxType::boolean;
    current_ = onnx_.reduce("ReduceSum", onnx_.cast(reached, OnnxType::float32), {-1}, shape, false);
  }

  OnnxValue one_hot(const OnnxValue& numbers, std::int64_t depth) {
    const OnnxValue indices = onnx_.cast(numbers, OnnxType::int64);
    const std::string off_and_on = onnx_.floats("off_and_on", {2}, {0, 1});
    return onnx_.add("OneHot", {indices.name, onnx_.integers({depth}), off_and_on}, output_shape(), OnnxValue(),
                     {{"axis", std::int64_t{-1}}});
  }

  Architecture architecture_;  ///< without nested models
  const std::vector<NamedTensor>& weights_;
  OnnxBuilder onnx_;
  std::vector<int> first_parameters_;  ///< by layer
  std::map<int, OnnxValue> values_;    ///< by call
  std::size_t call_ = 0;               ///< the call being lowered
  OnnxValue current_;
};

}  // namespace

OnnxGraph lower_to_onnx(const ModelData& model, int opset) { return OnnxLowering(model, opset).run(); }

}  // namespace lockstep
