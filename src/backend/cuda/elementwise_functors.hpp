// Elementwise and per-row functors: gathering examples, activations, bias, Dropout, softmax, type conversion.
#pragma once

#include "backend/cuda/index.hpp"
#include "backend/cuda/step_arguments.hpp"
#include "core/bfloat16.hpp"
#include "core/dropout_mask.hpp"
#include "layers/activation_functions.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

/// Copies this rank's examples from the dataset on the device: from / divisor * scale + offset.
template <typename From, typename To>
struct Gather {
  const StepArguments* arguments;
  To* to;
  Index elements;  ///< per example
  float divisor;   ///< 1 unless the inputs are bytes
  float scale;
  float offset;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto* from = static_cast<const From*>(arguments->inputs);
    const std::size_t example = arguments->examples[i / elements];
    to[i] = static_cast<float>(from[example * elements + i % elements]) / divisor * scale + offset;
  }
};

/// to = f(from + bias), converted to type To: an epilogue that a library did not fuse. `bias` may be null.
template <typename From, typename To>
struct AddBiasActivation {
  const From* from;
  To* to;
  const float* bias;
  Index channels;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const float x = static_cast<float>(from[i]) + (bias != nullptr ? bias[i % channels] : 0.0F);
    to[i] = activate(function, x);
  }
};

/// x_gradient = y_gradient times the derivatives of the activation that produced x and of `function`, which produced y:
/// linear where y_gradient already includes the derivative.
template <typename T>
struct ActivationGradient {
  const T* x;
  const T* y_gradient;
  T* x_gradient;
  ActivationFunction input_function;
  ActivationFunction function = ActivationFunction::linear;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const float gradient = activation_gradient(function, x[i], y_gradient[i]);
    x_gradient[i] = activation_gradient(input_function, x[i], gradient);
  }
};

/// The same in place, for the columns [begin, begin + width) of a matrix with `stride` columns.
template <typename T>
struct ActivationGradientColumns {
  const T* x;
  T* gradient;
  Index begin;
  Index width;
  Index stride;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const std::size_t at = static_cast<std::size_t>(i / width) * stride + begin + i % width;
    gradient[at] = activation_gradient(function, x[at], gradient[at]);
  }
};

/// Dropout of four elements, forward or backward. Backward recomputes the mask and multiplies by the derivative of the
/// activation that produced x.
template <typename T>
struct DropoutQuad {
  const StepArguments* arguments;
  const T* from;
  T* to;
  const T* x;  ///< null in forward
  Index elements;
  Index quads;  ///< per example: elements / 4, rounded up
  std::uint32_t layer;
  float rate;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index example = i / quads;
    const Index quad = i % quads;
    const DropoutMask mask(arguments->seed, arguments->step, layer, rate);
    const auto factors = mask.factors_four(arguments->batch_offset + example, quad);
    for (Index k = 0; k < 4 && quad * 4 + k < elements; ++k) {
      const std::size_t at = static_cast<std::size_t>(example) * elements + quad * 4 + k;
      const float passed = factors[k] == 0.0F ? 0.0F : static_cast<float>(from[at]) * factors[k];
      to[at] = x == nullptr ? passed : activation_gradient(function, x[at], passed);
    }
  }
};

/// softmax, or its logarithm.
template <typename T>
struct SoftmaxRow {
  const T* x;
  T* y;
  Index channels;
  bool is_log = false;

  LOCKSTEP_HOST_DEVICE void operator()(Index row) const {
    const std::size_t begin = static_cast<std::size_t>(row) * channels;
    float largest = x[begin];
    for (Index c = 1; c < channels; ++c) largest = std::fmax(largest, static_cast<float>(x[begin + c]));
    float sum = 0;
    for (Index c = 0; c < channels; ++c) sum += std::exp(static_cast<float>(x[begin + c]) - largest);
    for (Index c = 0; c < channels; ++c) {
      const float below = static_cast<float>(x[begin + c]) - largest;
      y[begin + c] = is_log ? below - std::log(sum) : std::exp(below) / sum;
    }
  }
};

template <typename T>
struct SoftmaxRowBackward {
  const T* x;
  const T* y;
  const T* y_gradient;
  T* x_gradient;
  Index channels;
  ActivationFunction function;  ///< the activation that produced x
  bool is_log = false;

  LOCKSTEP_HOST_DEVICE void operator()(Index row) const {
    const std::size_t begin = static_cast<std::size_t>(row) * channels;
    float dot = 0;
    for (Index c = 0; c < channels; ++c) {
      dot += (is_log ? 1.0F : static_cast<float>(y[begin + c])) * static_cast<float>(y_gradient[begin + c]);
    }
    for (Index c = 0; c < channels; ++c) {
      const std::size_t at = begin + c;
      const auto its = static_cast<float>(y_gradient[at]);
      const float gradient =
          is_log ? its - std::exp(static_cast<float>(y[at])) * dot : static_cast<float>(y[at]) * (its - dot);
      x_gradient[at] = activation_gradient(function, x[at], gradient);
    }
  }
};

/// Numbers in [-1, 1) that depend on the index alone.
template <typename T>
struct FillWithRandomNumbers {
  T* to;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    Index bits = (i + 1) * 0x9E3779B9U;  // a hash by multiplications and shifts (Wellons, "lowbias32")
    bits = (bits ^ (bits >> 16U)) * 0x7FEB352DU;
    bits = (bits ^ (bits >> 15U)) * 0x846CA68BU;
    to[i] = static_cast<float>(bits >> 8U) * 0x1p-23F - 1.0F;
  }
};

/// Copies images into zero-padded ones, or crops them from padded ones.
template <typename T>
struct PadImages {
  const T* from;
  T* to;
  Index height, width, channels;  ///< of the smaller image
  Index padded_height, padded_width;
  Index above, before;  ///< padding at the top and on the left, in pixels
  bool crops;           ///< copies from the padded image

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index channel = i % channels;
    const Index column = i / channels % width;
    const Index row = i / channels / width % height;
    const std::size_t image = i / channels / width / height;
    const std::size_t padded =
        ((image * padded_height + row + above) * padded_width + column + before) * channels + channel;
    if (crops) {
      to[i] = from[padded];
    } else {
      to[padded] = from[i];
    }
  }
};

}  // namespace lockstep::cuda
