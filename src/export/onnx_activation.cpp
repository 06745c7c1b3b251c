// See onnx_activation.hpp. The formulas are those of layers/activation_functions.hpp.
#include "export/onnx_activation.hpp"

#include "layers/activation_functions.hpp"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

OnnxValue add_clip(OnnxBuilder& onnx, const OnnxValue& x, float minimum, float maximum) {
  return onnx.add("Clip", x, {onnx.scalar(minimum), onnx.scalar(maximum)});
}

/// x / 2 (1 + erf(x / sqrt(2)))
OnnxValue add_gelu(OnnxBuilder& onnx, const OnnxValue& x) {
  const float sqrt_half = ActivationRow<ActivationFunction::Kind::gelu>::sqrt_half;
  const OnnxValue erf = onnx.add("Erf", onnx.add("Mul", x, {onnx.scalar(sqrt_half)}));
  const OnnxValue half = onnx.add("Mul", x, {onnx.scalar(0.5F)});
  return onnx.add("Mul", half, {onnx.add("Add", erf, {onnx.scalar(1)}).name});
}

/// (x + sqrt(x² + 4)) / 2
OnnxValue add_squareplus(OnnxBuilder& onnx, const OnnxValue& x) {
  const OnnxValue square = onnx.add("Mul", x, {x.name});
  const OnnxValue root = onnx.add("Sqrt", onnx.add("Add", square, {onnx.scalar(4)}));
  return onnx.add("Mul", onnx.add("Add", x, {root.name}), {onnx.scalar(0.5F)});
}

/// (t + 1)² / 4 with t = x between -1 and 1, and above 1 also x - 1
OnnxValue add_sparse_plus(OnnxBuilder& onnx, const OnnxValue& x) {
  const OnnxValue shifted = onnx.add("Add", add_clip(onnx, x, -1, 1), {onnx.scalar(1)});
  const OnnxValue quarter = onnx.add("Mul", onnx.add("Mul", shifted, {shifted.name}), {onnx.scalar(0.25F)});
  const OnnxValue above = onnx.add("Relu", onnx.add("Sub", x, {onnx.scalar(1)}));
  return onnx.add("Add", quarter, {above.name});
}

OnnxValue add_clipped_relu(OnnxBuilder& onnx, const OnnxValue& x, const ActivationFunction& function) {
  const std::string threshold = onnx.scalar(function.threshold);
  const OnnxValue is_above = onnx.add("Greater", x, {threshold});
  const OnnxValue above = std::isinf(function.max_value) ? x : onnx.add("Min", x, {onnx.scalar(function.max_value)});
  const OnnxValue below = onnx.add("Mul", onnx.add("Sub", x, {threshold}), {onnx.scalar(function.parameter)});
  return onnx.add("Where", is_above, {above.name, below.name});
}

}  // namespace

std::optional<OnnxValue> add_activation(OnnxBuilder& onnx, const OnnxValue& x, ActivationFunction function) {
  using Kind = ActivationFunction::Kind;
  const auto apply = [&](const char* op_type, std::vector<OnnxAttribute> attributes = {}) {
    return onnx.add(op_type, x, {}, std::move(attributes));
  };
  const auto over_channels = [&](const char* op_type) {
    return onnx.add(op_type, onnx.channels_last(x), {}, {{"axis", std::int64_t{-1}}});
  };
  constexpr float sixth = 1.0F / 6.0F;
  switch (function.kind) {
    case Kind::linear: return x;
    case Kind::relu: return apply("Relu");
    case Kind::sigmoid: return apply("Sigmoid");
    case Kind::tanh: return apply("Tanh");
    case Kind::softmax: return over_channels("Softmax");
    case Kind::log_softmax: return over_channels("LogSoftmax");
    case Kind::relu6: return add_clip(onnx, x, 0, 6);
    case Kind::leaky_relu: return apply("LeakyRelu", {{"alpha", function.parameter}});
    case Kind::elu: return apply("Elu", {{"alpha", function.parameter}});
    case Kind::celu: return apply("Elu", {{"alpha", 1.0F}});
    case Kind::selu: {
      using Row = ActivationRow<Kind::selu>;
      return apply("Selu", {{"alpha", Row::scale_alpha / Row::scale}, {"gamma", Row::scale}});
    }
    case Kind::gelu: return add_gelu(onnx, x);
    case Kind::silu: return onnx.add("Mul", x, {apply("Sigmoid").name});
    case Kind::softplus: return apply("Softplus");
    case Kind::softsign: return apply("Softsign");
    case Kind::hard_sigmoid: return apply("HardSigmoid", {{"alpha", sixth}, {"beta", 0.5F}});
    case Kind::hard_silu: return apply("HardSwish");
    case Kind::exponential: return apply("Exp");
    case Kind::mish: return onnx.add("Mul", x, {onnx.add("Tanh", apply("Softplus")).name});
    case Kind::hard_tanh: return add_clip(onnx, x, -1, 1);
    case Kind::log_sigmoid: return onnx.add("Neg", onnx.add("Softplus", apply("Neg")));
    case Kind::tanh_shrink: return onnx.add("Sub", x, {apply("Tanh").name});
    case Kind::hard_shrink: return apply("Shrink", {{"lambd", 0.5F}, {"bias", 0.0F}});
    case Kind::soft_shrink: return apply("Shrink", {{"lambd", 0.5F}, {"bias", 0.5F}});
    case Kind::squareplus: return add_squareplus(onnx, x);
    case Kind::sparse_plus: return add_sparse_plus(onnx, x);
    case Kind::clipped_relu: return add_clipped_relu(onnx, x, function);
    default: return std::nullopt;
  }
}

}  // namespace lockstep
