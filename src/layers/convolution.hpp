// Convolutions: over images and sequences, depthwise, separable and transposed.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"
#include "layers/window.hpp"

#include <lockstep/layers/convolution.hpp>

#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

/// The traits that all convolutions share.
struct ConvolutionTraits {
  [[nodiscard]] static Windows windows_of(const auto& conv) {
    return Windows::of(conv.kernel_size, conv.strides, conv.dilation_rate, conv.padding);
  }

  /// Whether a layer reads sequences.
  template <typename L>
  static constexpr bool is_1d = std::is_same_v<decltype(L::kernel_size), Size1D>;

  /// [height, width, in, out], or [steps, in, out].
  template <typename L>
  [[nodiscard]] static Shape kernel_shape(const L& /*conv*/, const Windows& windows, std::int64_t in,
                                          std::int64_t out) {
    if constexpr (is_1d<L>) {
      return {windows.columns.kernel, in, out};
    } else {
      return {windows.rows.kernel, windows.columns.kernel, in, out};
    }
  }

  static void add_bias(const auto& conv, std::int64_t filters, ShapeInference& shapes) {
    if (!conv.use_bias) return;
    shapes.add_weight("bias", Shape{filters}, conv.bias_initializer, conv.bias_regularizer, conv.bias_constraint);
  }

  /// Checks the input, which gives the number of its channels.
  template <typename L>
  static std::int64_t input_channels(const L& conv, const ShapeInference& shapes) {
    if constexpr (is_1d<L>) {
      shapes.need_sequence();
    } else {
      shapes.need_image();
    }
    const auto above_one = [](std::int64_t a, std::int64_t b) { return a > 1 || b > 1; };
    const auto [rows, columns] = windows_of(conv);
    if (above_one(rows.stride, columns.stride) && above_one(rows.dilation, columns.dilation)) {
      shapes.fail("has strides " + to_string(conv.strides) + " and dilation_rate " + to_string(conv.dilation_rate) +
                  ", but only one of them may be above 1");
    }
    return shapes.input()[shapes.input().rank() - 1];
  }
};

/// Conv2D and Conv1D.
template <typename L>
struct PlainConvolutionTraits : ConvolutionTraits {
  static L blank() { return {1, 1}; }

  static void fields(auto& visit, auto& conv) {
    visit.required("filters", conv.filters, at_least_one);
    visit.required("kernel_size", conv.kernel_size, at_least_one);
    visit.optional("strides", conv.strides, at_least_one);
    if constexpr (is_1d<L>) {
      visit.optional("padding", conv.padding, or_causal);
    } else {
      visit.optional("padding", conv.padding);
    }
    visit.constant("data_format", "channels_last");
    visit.optional("dilation_rate", conv.dilation_rate, at_least_one);
    visit.optional("groups", conv.groups, at_least_one);
    visit.optional("activation", conv.activation);
    visit.optional("use_bias", conv.use_bias);
    visit.optional("kernel_initializer", conv.kernel_initializer);
    visit.optional("bias_initializer", conv.bias_initializer);
    visit.optional("kernel_regularizer", conv.kernel_regularizer);
    visit.optional("bias_regularizer", conv.bias_regularizer);
    visit.optional("activity_regularizer", conv.activity_regularizer);
    visit.optional("kernel_constraint", conv.kernel_constraint);
    visit.optional("bias_constraint", conv.bias_constraint);
  }

  static void infer(const L& conv, ShapeInference& shapes) {
    const std::int64_t in = input_channels(conv, shapes);
    if (in % conv.groups != 0 || conv.filters % conv.groups != 0) {
      shapes.fail("has " + std::to_string(conv.groups) + " groups, which must divide its " + std::to_string(in) +
                  " input channels and its " + std::to_string(conv.filters) + " filters");
    }
    shapes.slide("kernel", windows_of(conv), conv.filters);
    shapes.add_weight("kernel", kernel_shape(conv, windows_of(conv), in / conv.groups, conv.filters),
                      conv.kernel_initializer, conv.kernel_regularizer, conv.kernel_constraint);
    add_bias(conv, conv.filters, shapes);
  }

  template <typename Lowering>
  static void lower(const L& conv, Lowering& to) {
    to.append_convolution(windows_of(conv), conv.filters, conv.groups);
    to.activate(conv.activation);
  }
};

template <>
struct LayerTraits<Conv2D> : PlainConvolutionTraits<Conv2D> {
  static constexpr std::string_view class_name = "Conv2D";
};

template <>
struct LayerTraits<Conv1D> : PlainConvolutionTraits<Conv1D> {
  static constexpr std::string_view class_name = "Conv1D";
};

/// DepthwiseConv2D and DepthwiseConv1D.
template <typename L>
struct DepthwiseConvolutionTraits : ConvolutionTraits {
  static L blank() { return L(1); }

  static void fields(auto& visit, auto& conv) {
    visit.optional("depth_multiplier", conv.depth_multiplier, at_least_one);
    visit.required("kernel_size", conv.kernel_size, at_least_one);
    visit.optional("strides", conv.strides, at_least_one);
    visit.optional("padding", conv.padding);
    visit.constant("data_format", "channels_last");
    visit.optional("dilation_rate", conv.dilation_rate, at_least_one);
    visit.optional("activation", conv.activation);
    visit.optional("use_bias", conv.use_bias);
    visit.optional("depthwise_initializer", conv.depthwise_initializer);
    visit.optional("bias_initializer", conv.bias_initializer);
    visit.optional("depthwise_regularizer", conv.depthwise_regularizer);
    visit.optional("bias_regularizer", conv.bias_regularizer);
    visit.optional("activity_regularizer", conv.activity_regularizer);
    visit.optional("depthwise_constraint", conv.depthwise_constraint);
    visit.optional("bias_constraint", conv.bias_constraint);
    visit.expected("groups", 1);  // Keras 2 also writes the options of Conv2D
    visit.ignored("kernel_initializer");
  }

  static void infer(const L& conv, ShapeInference& shapes) {
    const std::int64_t in = input_channels(conv, shapes);
    const std::int64_t out = in * conv.depth_multiplier;
    shapes.slide("kernel", windows_of(conv), out);
    shapes.add_weight("kernel", kernel_shape(conv, windows_of(conv), in, conv.depth_multiplier),
                      conv.depthwise_initializer, conv.depthwise_regularizer, conv.depthwise_constraint);
    add_bias(conv, out, shapes);
  }

  template <typename Lowering>
  static void lower(const L& conv, Lowering& to) {
    const std::int64_t in = to.channels();
    to.append_convolution(windows_of(conv), in * conv.depth_multiplier, in);
    to.activate(conv.activation);
  }
};

template <>
struct LayerTraits<DepthwiseConv2D> : DepthwiseConvolutionTraits<DepthwiseConv2D> {
  static constexpr std::string_view class_name = "DepthwiseConv2D";
};

template <>
struct LayerTraits<DepthwiseConv1D> : DepthwiseConvolutionTraits<DepthwiseConv1D> {
  static constexpr std::string_view class_name = "DepthwiseConv1D";
};

/// SeparableConv2D and SeparableConv1D.
template <typename L>
struct SeparableConvolutionTraits : ConvolutionTraits {
  static L blank() { return {1, 1}; }

  static void fields(auto& visit, auto& conv) {
    visit.optional("depth_multiplier", conv.depth_multiplier, at_least_one);
    visit.required("filters", conv.filters, at_least_one);
    visit.required("kernel_size", conv.kernel_size, at_least_one);
    visit.optional("strides", conv.strides, at_least_one);
    visit.optional("padding", conv.padding);
    visit.constant("data_format", "channels_last");
    visit.optional("dilation_rate", conv.dilation_rate, at_least_one);
    visit.optional("activation", conv.activation);
    visit.optional("use_bias", conv.use_bias);
    visit.optional("depthwise_initializer", conv.depthwise_initializer);
    visit.optional("pointwise_initializer", conv.pointwise_initializer);
    visit.optional("bias_initializer", conv.bias_initializer);
    visit.optional("depthwise_regularizer", conv.depthwise_regularizer);
    visit.optional("pointwise_regularizer", conv.pointwise_regularizer);
    visit.optional("bias_regularizer", conv.bias_regularizer);
    visit.optional("activity_regularizer", conv.activity_regularizer);
    visit.optional("depthwise_constraint", conv.depthwise_constraint);
    visit.optional("pointwise_constraint", conv.pointwise_constraint);
    visit.optional("bias_constraint", conv.bias_constraint);
    visit.expected("groups", 1);  // Keras 2 also writes the options of Conv2D
    visit.ignored("kernel_initializer");
  }

  static void infer(const L& conv, ShapeInference& shapes) {
    const std::int64_t in = input_channels(conv, shapes);
    shapes.slide("kernel", windows_of(conv), conv.filters);
    shapes.add_weight("depthwise_kernel", kernel_shape(conv, windows_of(conv), in, conv.depth_multiplier),
                      conv.depthwise_initializer, conv.depthwise_regularizer, conv.depthwise_constraint);
    shapes.add_weight("pointwise_kernel", kernel_shape(conv, Windows(), in * conv.depth_multiplier, conv.filters),
                      conv.pointwise_initializer, conv.pointwise_regularizer, conv.pointwise_constraint);
    add_bias(conv, conv.filters, shapes);
  }

  template <typename Lowering>
  static void lower(const L& conv, Lowering& to) {
    const std::int64_t in = to.channels();
    to.append_convolution(windows_of(conv), in * conv.depth_multiplier, in, {0, 1});
    to.append_convolution(Windows(), conv.filters, 1, {1, conv.use_bias ? 3 : 2});
    to.activate(conv.activation);
  }
};

template <>
struct LayerTraits<SeparableConv2D> : SeparableConvolutionTraits<SeparableConv2D> {
  static constexpr std::string_view class_name = "SeparableConv2D";
};

template <>
struct LayerTraits<SeparableConv1D> : SeparableConvolutionTraits<SeparableConv1D> {
  static constexpr std::string_view class_name = "SeparableConv1D";
};

/// Conv2DTranspose and Conv1DTranspose.
template <typename L>
struct TransposedConvolutionTraits : ConvolutionTraits {
  static L blank() { return {1, 1}; }

  static void fields(auto& visit, auto& conv) {
    visit.required("filters", conv.filters, at_least_one);
    visit.required("kernel_size", conv.kernel_size, at_least_one);
    visit.optional("strides", conv.strides, at_least_one);
    visit.optional("padding", conv.padding);
    visit.constant("output_padding", nullptr);
    visit.constant("data_format", "channels_last");
    visit.optional("dilation_rate", conv.dilation_rate, at_least_one);
    visit.optional("activation", conv.activation);
    visit.optional("use_bias", conv.use_bias);
    visit.optional("kernel_initializer", conv.kernel_initializer);
    visit.optional("bias_initializer", conv.bias_initializer);
    visit.optional("kernel_regularizer", conv.kernel_regularizer);
    visit.optional("bias_regularizer", conv.bias_regularizer);
    visit.optional("activity_regularizer", conv.activity_regularizer);
    visit.optional("kernel_constraint", conv.kernel_constraint);
    visit.optional("bias_constraint", conv.bias_constraint);
    visit.expected("groups", 1);  // Keras 2 also writes the options of Conv2D
  }

  static void infer(const L& conv, ShapeInference& shapes) {
    const std::int64_t in = input_channels(conv, shapes);
    const Shape& input = shapes.input();
    const Windows windows = windows_of(conv).transposed_over(is_1d<L> ? 1 : input[0], input[is_1d<L> ? 0 : 1]);
    const std::int64_t steps = windows.columns.input;
    shapes.set_output(is_1d<L> ? Shape{steps, conv.filters} : Shape{windows.rows.input, steps, conv.filters});
    shapes.add_weight("kernel", kernel_shape(conv, windows, conv.filters, in), conv.kernel_initializer,
                      conv.kernel_regularizer, conv.kernel_constraint);
    add_bias(conv, conv.filters, shapes);
  }

  template <typename Lowering>
  static void lower(const L& conv, Lowering& to) {
    to.append_transposed_convolution(windows_of(conv), conv.filters);
    to.activate(conv.activation);
  }
};

template <>
struct LayerTraits<Conv2DTranspose> : TransposedConvolutionTraits<Conv2DTranspose> {
  static constexpr std::string_view class_name = "Conv2DTranspose";
};

template <>
struct LayerTraits<Conv1DTranspose> : TransposedConvolutionTraits<Conv1DTranspose> {
  static constexpr std::string_view class_name = "Conv1DTranspose";
};

}  // namespace lockstep
