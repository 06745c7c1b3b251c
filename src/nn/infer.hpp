// What follows for a layer from the shape it is given: its output shape and its parameters.
#pragma once

#include <lockstep/nn/sequential.hpp>

#include <string_view>

namespace lockstep {

/// Keras' class of a layer ("InputLayer", "Conv2D", ...) and the automatic name made of it ("input_layer", "conv2d").
struct LayerClass {
  std::string_view class_name;
  std::string_view snake_name;
};
[[nodiscard]] LayerClass class_of(const Layer& layer) noexcept;

/// Fills output_shape and parameters of `info`, whose layer, class_name, name and input_shape are known, and puts
/// numbers in place of defaults that depend on others (a pooling's strides). Throws UsageError naming the layer.
void infer(LayerInfo& info);

}  // namespace lockstep
