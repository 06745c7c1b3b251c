// See shape_inference.hpp. Checks the ranges of all fields, then each layer's own rules.
#include "layers/shape_inference.hpp"

#include "layers/activation_functions.hpp"
#include "layers/constraints.hpp"
#include "layers/layer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int64_t max_elements = std::numeric_limits<std::int32_t>::max();

/// Visits a layer's fields and rejects values out of range.
class RangeCheck : public FieldVisitor {
 public:
  explicit RangeCheck(const ShapeInference& shapes) : shapes_(shapes) {}

  void required(std::string_view key, const auto& value, const auto&... range) const { check(key, value, range...); }
  void optional(std::string_view key, const auto& value, const auto&... range) const { check(key, value, range...); }

 private:
  void check(std::string_view /*key*/, const auto& /*value of any kind*/) const {}
  void check(std::string_view key, ActivationFunction function) const {
    if (!has_parameter(function) && function == named_activation(function.kind)) return;
    shapes_.fail(fmt::format("has {} {}, which takes a parameter; apply it with a separate layer after this one", key,
                             keras_name(function)));
  }
  void check(std::string_view key, double value, const Interval& range) const {
    if (range.contains(value)) return;
    shapes_.fail(fmt::format("has {} {}, but it must be {}", key, value, range.to_string()));
  }
  void check(std::string_view key, const std::optional<double>& value, const Interval& range) const {
    if (value) check(key, *value, range);
  }
  void check(std::string_view key, Margins1D value, const Interval& range) const {
    check(key, value.before, range);
    check(key, value.after, range);
  }
  void check(std::string_view key, const Margins2D& value, const Interval& range) const {
    check(key, Margins1D(value.top, value.bottom), range);
    check(key, Margins1D(value.left, value.right), range);
  }
  void check(std::string_view key, Size2D value, const Interval& range) const {
    if (range.contains(value.height) && range.contains(value.width)) return;
    shapes_.fail(fmt::format("has {} {}, but both must be {}", key, to_string(value), range.to_string()));
  }

  void check(std::string_view key, Size1D value, const Interval& range) const {
    check(key, static_cast<double>(value.length), range);
  }
  void check(std::string_view /*key*/, Padding /*padding*/, OrCausal /*range*/) const {}
  void check(std::string_view key, Padding padding) const {
    if (padding == Padding::causal) shapes_.fail(fmt::format("has {} 'causal', which only Conv1D may have", key));
  }

  const ShapeInference& shapes_;
};

}  // namespace

std::string to_string(Size2D extent) { return Shape{extent.height, extent.width}.to_string(); }
std::string to_string(Size1D extent) { return std::to_string(extent.length); }

void ShapeInference::fail(const std::string& problem) const {
  throw UsageError(fmt::format("layer '{}' ({}) {}", info_.name, info_.class_name, problem));
}

void ShapeInference::need_inputs(std::size_t min, std::size_t max) const {
  if (min <= inputs_.size() && inputs_.size() <= max) return;
  fail(fmt::format("merges {} {} tensors, but is called on {}", max == min ? "exactly" : "at least", min,
                   inputs_.size()));
}

void ShapeInference::need_rank(std::size_t rank, std::string_view axes) const {
  if (input().rank() == rank) return;
  fail(fmt::format("needs an input of rank {}, {}, but its input is {}", rank, axes, input().to_string()));
}

void ShapeInference::need_image() const {
  if (input().rank() == 3) return;
  fail("needs an input of rank 3, (height, width, channels), but its input is " + input().to_string() +
       "; put a Reshape before it, e.g. Reshape({28, 28, 1})");
}

void ShapeInference::need_sequence() const {
  if (input().rank() == 2) return;
  fail("needs an input of rank 2, (steps, channels), but its input is " + input().to_string() +
       "; put a Reshape before it, e.g. Reshape({28, 28})");
}

void ShapeInference::need_size(const Shape& shape, std::string_view what) const {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape.extents()) {
    if (__builtin_mul_overflow(elements, extent, &elements) || elements > max_elements) {
      fail(fmt::format("would have the {} {}, more than the {} elements that are supported", what, shape.to_string(),
                       max_elements));
    }
  }
}

void ShapeInference::set_output(Shape shape) {
  need_size(shape, "output");
  info_.output_shape = std::move(shape);
}

void ShapeInference::check_regularizer(const Regularizer& regularizer, std::string_view of) const {
  for (const double factor : {regularizer.l1, regularizer.l2}) {
    if (not_negative.contains(factor)) continue;
    fail(fmt::format("has a regularizer with the factor {} for its {}; it must be {}", factor, of,
                     not_negative.to_string()));
  }
}

void ShapeInference::add_weight(std::string name, Shape shape, Initializer initializer, Regularizer regularizer,
                                const Constraint& constraint) {
  need_size(shape, name);
  check_regularizer(regularizer, name);
  if (const auto problem = problem_of(constraint, shape)) {
    fail(fmt::format("has a constraint for its {} with {}", name, *problem));
  }
  info_.parameters.push_back({.name = std::move(name),
                              .shape = std::move(shape),
                              .initializer = initializer,
                              .regularizer = regularizer,
                              .constraint = constraint});
}

void ShapeInference::add_parameters(const std::vector<ParameterInfo>& parameters, const std::string& prefix) {
  for (const ParameterInfo& parameter : parameters) {
    info_.parameters.push_back(parameter);
    info_.parameters.back().name.insert(0, prefix);
  }
}

void ShapeInference::add_constant(std::string name, Shape shape, Initializer initializer) {
  add_weight(std::move(name), std::move(shape), initializer);
  info_.parameters.back().trainable = false;
  info_.parameters.back().is_constant = true;
}

void ShapeInference::add_moving_average(std::string name, Shape shape, Initializer initializer, double momentum) {
  need_size(shape, name);
  info_.parameters.push_back({std::move(name), std::move(shape), initializer, false, momentum});
}

void ShapeInference::slide(std::string_view what, const Windows& windows, std::int64_t channels) {
  const bool is_sequence = input().rank() == 2;
  const auto [rows, columns] = windows.over(is_sequence ? 1 : input()[0], input()[is_sequence ? 0 : 1]);
  if (rows.output() < 1 || columns.output() < 1) {
    const std::string size = is_sequence
                                 ? fmt::format("{} steps", columns.effective_kernel())
                                 : fmt::format("{} x {} cells", rows.effective_kernel(), columns.effective_kernel());
    fail(fmt::format("has a {} window of {}, but its input is {}; make it smaller or use padding 'same'", what, size,
                     input().to_string()));
  }
  set_output(is_sequence ? Shape{columns.output(), channels} : Shape{rows.output(), columns.output(), channels});
}

void infer_shapes(LayerInfo& info, std::span<const Shape> inputs) {
  const auto* input = std::get_if<Input>(&info.layer);
  info.input_shape = input != nullptr ? input->shape : inputs.front();
  ShapeInference shapes(info, inputs);
  std::visit(
      [&]<typename L>(L& layer) {
        if constexpr (requires { LayerTraits<L>::complete(layer); }) LayerTraits<L>::complete(layer);
        if (!is_merge<L> && !std::is_same_v<L, NestedModel> && inputs.size() > 1) {
          shapes.fail(fmt::format("takes one tensor, but is called on {}", inputs.size()));
        }
        const RangeCheck check(shapes);
        LayerTraits<L>::fields(check, layer);
        shapes.check_regularizer(activity_regularizer_of(info.layer), "output");
        LayerTraits<L>::infer(layer, shapes);
      },
      info.layer);
  if (is_trainable(info.layer)) return;
  for (ParameterInfo& parameter : info.parameters) parameter.trainable = false;
}

}  // namespace lockstep
