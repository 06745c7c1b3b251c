// Conv2D.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/convolution.hpp>

#include <string_view>

namespace lockstep {

template <>
struct LayerTraits<Conv2D> {
  static constexpr std::string_view class_name = "Conv2D";
  static Conv2D blank() { return {1, 1}; }

  static void fields(auto& visit, auto& conv) {
    visit.required("filters", conv.filters, at_least_one);
    visit.required("kernel_size", conv.kernel_size, at_least_one);
    visit.optional("strides", conv.strides, at_least_one);
    visit.optional("padding", conv.padding);
    visit.constant("data_format", "channels_last");
    visit.optional("dilation_rate", conv.dilation_rate, at_least_one);
    visit.expected("groups", 1);
    visit.optional("activation", conv.activation);
    visit.optional("use_bias", conv.use_bias);
    visit.optional("kernel_initializer", conv.kernel_initializer);
    visit.optional("bias_initializer", conv.bias_initializer);
  }

  static void infer(const Conv2D& conv, ShapeInference& shapes) {
    shapes.need_image();
    const auto above_one = [](Size2D extent) { return extent.height > 1 || extent.width > 1; };
    if (above_one(conv.strides) && above_one(conv.dilation_rate)) {
      shapes.fail("has strides " + to_string(conv.strides) + " and dilation_rate " + to_string(conv.dilation_rate) +
                  ", but only one of them may be above 1");
    }
    shapes.slide("kernel", conv.kernel_size, conv.strides, conv.dilation_rate, conv.padding, conv.filters);
    shapes.add_weight("kernel", Shape{conv.kernel_size.height, conv.kernel_size.width, shapes.input()[2], conv.filters},
                      conv.kernel_initializer);
    if (conv.use_bias) shapes.add_weight("bias", Shape{conv.filters}, conv.bias_initializer);
  }

  template <typename Lowering>
  static void lower(const Conv2D& conv, Lowering& to) {
    to.append_weighted(Lowering::Kind::convolution);
    to.activate(conv.activation);
  }
};

}  // namespace lockstep
