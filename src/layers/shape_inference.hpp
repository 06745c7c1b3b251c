// Infers a layer's output shape and parameters from its input shape.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/window.hpp"

#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

[[nodiscard]] std::string to_string(Size2D extent);
[[nodiscard]] std::string to_string(Size1D extent);

/// The interface of LayerTraits<L>::infer: reads the input shapes, and sets output shape and parameters. Throws
/// UsageError for outputs and parameters of more than 2^31 - 1 elements, because oneDNN and cuDNN use 32-bit indices.
class ShapeInference {
 public:
  ShapeInference(LayerInfo& info, std::span<const Shape> inputs) : info_(info), inputs_(inputs) {}

  /// The first input; of an Input: its own shape.
  [[nodiscard]] const Shape& input() const noexcept { return info_.input_shape; }
  [[nodiscard]] std::span<const Shape> inputs() const noexcept { return inputs_; }

  void set_output(Shape shape);
  void add_weight(std::string name, Shape shape, Initializer initializer, Regularizer regularizer = {},
                  const Constraint& constraint = {});
  void add_parameters(const std::vector<ParameterInfo>& parameters, const std::string& prefix);
  /// A weight that training does not change.
  void add_constant(std::string name, Shape shape, Initializer initializer);
  void add_moving_average(std::string name, Shape shape, Initializer initializer, double momentum);

  /// Throws UsageError if a factor is negative. `of`: what it penalizes.
  void check_regularizer(const Regularizer& regularizer, std::string_view of) const;

  /// Throws UsageError unless the layer is called on this many tensors.
  void need_inputs(std::size_t min, std::size_t max = std::numeric_limits<std::size_t>::max()) const;
  /// Throws UsageError unless the input has this many axes, which `axes` names: "(steps, channels)".
  void need_rank(std::size_t rank, std::string_view axes) const;
  /// Throws UsageError unless the input is (height, width, channels).
  void need_image() const;
  /// Throws UsageError unless the input is (steps, channels).
  void need_sequence() const;
  /// Sets the output shape of windows that slide over an image or a sequence. `what` names the window in errors.
  void slide(std::string_view what, const Windows& windows, std::int64_t channels);

  /// Throws UsageError: "layer 'NAME' (CLASS) PROBLEM".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void need_size(const Shape& shape, std::string_view what) const;

  LayerInfo& info_;
  std::span<const Shape> inputs_;
};

/// Sets input_shape, output_shape and parameters of `info` from its layer, class_name and name, and replaces defaults
/// that depend on other fields. Throws UsageError that names the layer. `inputs`: the shapes that a call reads.
void infer_shapes(LayerInfo& info, std::span<const Shape> inputs);

}  // namespace lockstep
