// Convolutions over images (height, width, channels) and sequences (steps, channels) in channels_last format. All add a
// bias and apply the activation.
#pragma once

#include <lockstep/layers/activation.hpp>
#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/geometry.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/regularizer.hpp>

#include <string>
#include <utility>

namespace lockstep {

struct Conv2DOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid;
  Size2D dilation_rate = 1;
  int groups = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// Cross-correlates (height, width, in) with a [kernel_size.height, kernel_size.width, in / groups, filters] kernel.
/// With groups, the i-th group of filters reads the i-th group of input channels.
struct Conv2D : Conv2DOptions, CallableLayer<Conv2D> {
  Conv2D(int filters_, Size2D kernel_size_, Conv2DOptions options = {})
      : Conv2DOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Size2D kernel_size;
};

struct Conv1DOptions {
  Size1D strides = 1;
  Padding padding = Padding::valid;
  Size1D dilation_rate = 1;
  int groups = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// Cross-correlates (steps, in) with a [kernel_size, in / groups, filters] kernel.
struct Conv1D : Conv1DOptions, CallableLayer<Conv1D> {
  Conv1D(int filters_, Size1D kernel_size_, Conv1DOptions options = {})
      : Conv1DOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Size1D kernel_size;
};

struct DepthwiseConv2DOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid;
  int depth_multiplier = 1;
  Size2D dilation_rate = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer depthwise_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer depthwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// Cross-correlates each input channel with `depth_multiplier` kernels of its own: a [kernel_size.height,
/// kernel_size.width, in, depth_multiplier] kernel gives in * depth_multiplier channels.
struct DepthwiseConv2D : DepthwiseConv2DOptions, CallableLayer<DepthwiseConv2D> {
  explicit DepthwiseConv2D(Size2D kernel_size_, DepthwiseConv2DOptions options = {})
      : DepthwiseConv2DOptions(std::move(options)), kernel_size(kernel_size_) {}
  Size2D kernel_size;
};

struct DepthwiseConv1DOptions {
  Size1D strides = 1;
  Padding padding = Padding::valid;
  int depth_multiplier = 1;
  Size1D dilation_rate = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer depthwise_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer depthwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// The same over sequences, with a [kernel_size, in, depth_multiplier] kernel.
struct DepthwiseConv1D : DepthwiseConv1DOptions, CallableLayer<DepthwiseConv1D> {
  explicit DepthwiseConv1D(Size1D kernel_size_, DepthwiseConv1DOptions options = {})
      : DepthwiseConv1DOptions(std::move(options)), kernel_size(kernel_size_) {}
  Size1D kernel_size;
};

struct SeparableConv2DOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid;
  Size2D dilation_rate = 1;
  int depth_multiplier = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer depthwise_initializer = Initializer::glorot_uniform;
  Initializer pointwise_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer depthwise_regularizer = {};
  Regularizer pointwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint pointwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// A depthwise convolution without bias, and a 1 x 1 convolution of its result.
struct SeparableConv2D : SeparableConv2DOptions, CallableLayer<SeparableConv2D> {
  SeparableConv2D(int filters_, Size2D kernel_size_, SeparableConv2DOptions options = {})
      : SeparableConv2DOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Size2D kernel_size;
};

struct SeparableConv1DOptions {
  Size1D strides = 1;
  Padding padding = Padding::valid;
  Size1D dilation_rate = 1;
  int depth_multiplier = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer depthwise_initializer = Initializer::glorot_uniform;
  Initializer pointwise_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer depthwise_regularizer = {};
  Regularizer pointwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint pointwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// The same over sequences.
struct SeparableConv1D : SeparableConv1DOptions, CallableLayer<SeparableConv1D> {
  SeparableConv1D(int filters_, Size1D kernel_size_, SeparableConv1DOptions options = {})
      : SeparableConv1DOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Size1D kernel_size;
};

struct Conv2DTransposeOptions {
  Size2D strides = 1;
  Padding padding = Padding::valid;
  Size2D dilation_rate = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// The gradient of a Conv2D with respect to its input, as a layer: maps (height, width, in) to an image that is about
/// `strides` times as large. Its kernel is [kernel_size.height, kernel_size.width, filters, in].
struct Conv2DTranspose : Conv2DTransposeOptions, CallableLayer<Conv2DTranspose> {
  Conv2DTranspose(int filters_, Size2D kernel_size_, Conv2DTransposeOptions options = {})
      : Conv2DTransposeOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Size2D kernel_size;
};

struct Conv1DTransposeOptions {
  Size1D strides = 1;
  Padding padding = Padding::valid;
  Size1D dilation_rate = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
};

/// The same over sequences, with a [kernel_size, filters, in] kernel.
struct Conv1DTranspose : Conv1DTransposeOptions, CallableLayer<Conv1DTranspose> {
  Conv1DTranspose(int filters_, Size1D kernel_size_, Conv1DTransposeOptions options = {})
      : Conv1DTransposeOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Size1D kernel_size;
};

}  // namespace lockstep
