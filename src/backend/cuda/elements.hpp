// Bodies that treat each element, or each row, alone: input, activations, bias, Dropout, softmax, changes of type.
#pragma once

#include "backend/cuda/host_device.hpp"
#include "backend/cuda/step_arguments.hpp"
#include "core/bfloat16.hpp"
#include "core/dropout_mask.hpp"

#include <lockstep/nn/activation.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

LOCKSTEP_HOST_DEVICE inline float activate(ActivationFunction function, float x) {
  switch (function) {
    case ActivationFunction::relu: return x > 0.0F ? x : 0.0F;
    case ActivationFunction::sigmoid: return 1.0F / (1.0F + std::exp(-x));
    case ActivationFunction::tanh: return std::tanh(x);
    case ActivationFunction::linear:
    case ActivationFunction::softmax: break;
  }
  return x;
}

/// The gradient before an activation, from the one after it and from the activation's output.
LOCKSTEP_HOST_DEVICE inline float through(ActivationFunction function, float y, float gradient) {
  switch (function) {
    case ActivationFunction::relu: return y > 0.0F ? gradient : 0.0F;
    case ActivationFunction::sigmoid: return gradient * y * (1.0F - y);
    case ActivationFunction::tanh: return gradient * (1.0F - y * y);
    case ActivationFunction::linear:
    case ActivationFunction::softmax: break;
  }
  return gradient;
}

/// This rank's examples out of the resident data set, from / divisor * scale + offset.
template <typename From, typename To>
struct Gather {
  const StepArguments* arguments;
  To* to;
  Index elements;  ///< of an example
  float divisor;   ///< of bytes; 1 of floats
  float scale;
  float offset;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const auto* from = static_cast<const From*>(arguments->inputs);
    const std::size_t example = arguments->examples[i / elements];
    to[i] = static_cast<float>(from[example * elements + i % elements]) / divisor * scale + offset;
  }
};

/// to = f(from + bias): what a fused kernel would have done, and a change of type on the way. `bias` may be null.
template <typename From, typename To>
struct Finish {
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

/// x_gradient = y_gradient through the activation that made x.
template <typename T>
struct PassBack {
  const T* x;
  const T* y_gradient;
  T* x_gradient;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const { x_gradient[i] = through(function, x[i], y_gradient[i]); }
};

/// The same in place, for a block of columns [begin, begin + width) of rows of `stride`.
template <typename T>
struct PassBackColumns {
  const T* x;
  T* gradient;
  Index begin;
  Index width;
  Index stride;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const std::size_t at = static_cast<std::size_t>(i / width) * stride + begin + i % width;
    gradient[at] = through(function, x[at], gradient[at]);
  }
};

/// Dropout of one quad of elements, forward and backward alike: the mask is computed, not kept. Backward it is followed
/// by the activation that made x.
template <typename T>
struct DropQuad {
  const StepArguments* arguments;
  const T* from;
  T* to;
  const T* x;  ///< backward; null forward
  Index elements;
  Index quads;  ///< of an example: elements / 4, rounded up
  std::uint32_t layer;
  float rate;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index row = i / quads;
    const Index quad = i % quads;
    const DropoutMask mask(arguments->seed, arguments->step, layer, rate);
    const auto factors = mask.factors_four(arguments->first_place + row, quad);
    for (Index k = 0; k < 4 && quad * 4 + k < elements; ++k) {
      const std::size_t at = static_cast<std::size_t>(row) * elements + quad * 4 + k;
      const float passed = factors[k] == 0.0F ? 0.0F : static_cast<float>(from[at]) * factors[k];
      to[at] = x == nullptr ? passed : through(function, x[at], passed);
    }
  }
};

template <typename T>
struct SoftmaxRow {
  const T* x;
  T* y;
  Index channels;

  LOCKSTEP_HOST_DEVICE void operator()(Index row) const {
    const std::size_t begin = static_cast<std::size_t>(row) * channels;
    float largest = x[begin];
    for (Index c = 1; c < channels; ++c) largest = std::fmax(largest, static_cast<float>(x[begin + c]));
    float sum = 0;
    for (Index c = 0; c < channels; ++c) sum += std::exp(static_cast<float>(x[begin + c]) - largest);
    for (Index c = 0; c < channels; ++c) {
      y[begin + c] = std::exp(static_cast<float>(x[begin + c]) - largest) / sum;
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
  ActivationFunction function;  ///< that made x

  LOCKSTEP_HOST_DEVICE void operator()(Index row) const {
    const std::size_t begin = static_cast<std::size_t>(row) * channels;
    float dot = 0;
    for (Index c = 0; c < channels; ++c) {
      dot += static_cast<float>(y[begin + c]) * static_cast<float>(y_gradient[begin + c]);
    }
    for (Index c = 0; c < channels; ++c) {
      const std::size_t at = begin + c;
      const float gradient = static_cast<float>(y[at]) * (static_cast<float>(y_gradient[at]) - dot);
      x_gradient[at] = through(function, x[at], gradient);
    }
  }
};

/// Copies images into the middle of larger ones, or back out of it.
template <typename T>
struct Frame {
  const T* from;
  T* to;
  Index height, width, channels;  ///< of the smaller image
  Index framed_height, framed_width;
  Index above, before;  ///< cells of the frame
  bool inward;          ///< from the larger to the smaller

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index channel = i % channels;
    const Index column = i / channels % width;
    const Index row = i / channels / width % height;
    const std::size_t image = i / channels / width / height;
    const std::size_t framed =
        ((image * framed_height + row + above) * framed_width + column + before) * channels + channel;
    if (inward) {
      to[i] = from[framed];
    } else {
      to[framed] = from[i];
    }
  }
};

}  // namespace lockstep::cuda
