// See draw_graph.hpp.
#include "support/draw_graph.hpp"

#include <lockstep/layers/sequential.hpp>

#include <array>
#include <cstddef>

namespace lockstep::testing {

Architecture DrawGraph::model() {
  const int channels = std::array{2, 5, 8, 16, 32}[static_cast<std::size_t>(below(5))];
  const Tensor image = Input({4 + below(4), 4 + below(4), 1 + below(3)});
  std::vector<Tensor> tensors{convolution(channels)(image)};
  if (below(2) == 0) tensors.push_back(convolution(channels)(image));
  const int steps = 3 + static_cast<int>(below(6));
  for (int step = 0; step < steps; ++step) tensors.push_back(below(2) == 0 ? merge(tensors) : layer(tensors, channels));
  Tensor x = Dense(4, {.activation = activations::tanh})(Flatten()(tensors.back()));
  if (below(2) == 0) {  // a branch that joins after the images
    x = Subtract()({x, Dense(4)(GlobalAveragePooling2D()(any_of(tensors)))});
  }
  if (for_gpu_ || below(4) > 0) return Functional(image, Dense(3)(x));
  const Tensor numbers = Input({1 + below(5)});
  x = Add()({Dense(4, {.activation = activations::tanh})(numbers), x});
  return Functional(std::vector{image, numbers}, std::vector{Dense(3)(x)});
}

Conv2D DrawGraph::convolution(int channels) {
  return {channels,
          1 + static_cast<int>(below(3)),
          {.padding = "same", .activation = below(2) == 0 ? activations::tanh : activations::linear}};
}

Tensor DrawGraph::any_of(const std::vector<Tensor>& tensors) {
  return tensors[static_cast<std::size_t>(below(static_cast<int>(tensors.size())))];
}

Tensor DrawGraph::layer(const std::vector<Tensor>& tensors, int channels) {
  const Tensor x = any_of(tensors);
  switch (below(12)) {
    case 0: return BatchNormalization({.momentum = 0.5})(x);
    case 1: return Activation(below(2) == 0 ? activations::sigmoid : activations::relu)(x);
    case 2: return Dropout(0.3)(x);
    case 3: return MaxPooling2D(2, {.strides = 1, .padding = "same"})(x);
    case 4: return AveragePooling2D(3, {.strides = 1, .padding = "same"})(x);
    case 5: return Reshape(x.shape())(Flatten()(x));
    case 6: return shared_convolution(channels)(x);
    case 7: return shared_normalization_(x);
    case 8: return nested(x.shape(), channels)(x);
    case 9: return Identity()(x);
    case 10: return convolution(channels)(Activation(activations::tanh)(BatchNormalization({.momentum = 0.5})(x)));
    default: return convolution(channels)(x);
  }
}

const Conv2D& DrawGraph::shared_convolution(int channels) {
  if (!shared_convolution_) shared_convolution_ = convolution(channels);
  return *shared_convolution_;
}

const Architecture& DrawGraph::nested(const Shape& shape, int channels) {
  if (nested_) return *nested_;
  const Tensor input = Input(shape);
  if (below(2) == 0) {
    const Tensor x = BatchNormalization({.momentum = 0.75})(convolution(channels)(input));
    nested_ = Functional(input, Add()({x, input}));
  } else {
    nested_ = Sequential({Input(shape), convolution(channels), Dropout(0.2), convolution(channels)});
  }
  return *nested_;
}

Tensor DrawGraph::merge(const std::vector<Tensor>& tensors) {
  const std::vector<Tensor> two{any_of(tensors), any_of(tensors)};
  const std::vector<Tensor> three{two[0], two[1], any_of(tensors)};
  const std::vector<Tensor>& some = below(2) == 0 ? two : three;
  if (!for_gpu_ && below(3) == 0) return merge_on_cpus(some, tensors);
  switch (below(6)) {
    case 0: return Subtract()(two);
    case 1: return Multiply()(two);
    case 2: return Average()(some);
    case 3: return Maximum()(some);
    case 4: return Minimum()(some);
    default: return Add()(some);
  }
}

Tensor DrawGraph::merge_on_cpus(const std::vector<Tensor>& some, const std::vector<Tensor>& tensors) {
  const std::vector<Tensor> two{some[0], some[1]};
  const Shape& shape = two[0].shape();
  const int channels = static_cast<int>(shape[2]);
  const auto gate = [&] {
    const Tensor mean = Reshape({1, 1, channels})(GlobalAveragePooling2D()(two[1]));
    return Dense(channels, {.activation = activations::sigmoid})(mean);
  };
  const auto attention = [&] {  // each pixel's channels, weighed by their likeness
    const Shape pixels{shape[0] * shape[1], channels};
    const Tensor alike = Dot(2, {.normalize = below(2) == 0})({Reshape(pixels)(two[0]), Reshape(pixels)(two[1])});
    return Reshape(shape)(Dot({2, 1})({alike, Reshape(pixels)(any_of(tensors))}));
  };
  switch (below(4)) {
    case 0: return Conv2D(channels, 1)(Concatenate()(some));
    case 1: return CustomScaleLayer(0.5)(two);
    case 2: return attention();
    default: return Multiply()({two[0], gate()});
  }
}

}  // namespace lockstep::testing
