// BatchNormalization against the reference: outputs, loss, moving averages, and the gradients of all weights.
#include "checked_layers.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("BatchNormalization matches the reference for one and several uneven replicas") {
  const std::vector<Layer> normalizations{BatchNormalization(), BatchNormalization({.momentum = 0.5, .epsilon = 0.1}),
                                          BatchNormalization({.center = false}), BatchNormalization({.scale = false}),
                                          BatchNormalization({.momentum = 0, .center = false, .scale = false})};
  for (const Layer& normalization : normalizations) {
    for (const int channels : {1, 16, 32, 33}) {
      const Sequential model = around({Conv2D(channels, 2, {.activation = channels == 32 ? relu : activations::linear}),
                                       normalization, Activation(channels == 16 ? relu : tanh_), Conv2D(4, 2)});
      INFO(describe(model));
      CheckedModel checked_model(model);
      checked_model.train({8});
      checked_model.train({4, 3});
      checked_model.train({3, 3, 2});
      checked_model.train({1, 0, 1, 0});
      checked_model.infer(6);
    }
    check(Sequential{Input({4, 4, 3}), normalization, Flatten(), Dense(3)});
    check(Sequential{Input({5}), normalization, Dense(4), normalization, Activation(relu), Dense(3)});
    check(around({Flatten(), normalization, Dense(6, {.activation = relu})}));
    check(around({normalization, Activation(softmax), normalization, MaxPooling2D()}));
  }
}

TEST_CASE("BatchNormalization of many channels, of large images and beside relu6 matches the reference") {
  for (const int threads : {1, 2}) {  // which take tiles of 64 and of 16 channels
    for (const ActivationFunction function : {relu, activations::relu6, tanh_}) {
      const std::vector<Sequential> models{
          Sequential{Input({3, 2, 83}), BatchNormalization(), Activation(function), Flatten(), Dense(3)},
          Sequential{Input({17, 16, 2}), BatchNormalization(), Activation(function), Flatten(), Dense(3)},
          Sequential{Input({6, 5, 2}), Conv2D(83, 2, {.activation = function}), BatchNormalization(), Flatten(),
                     Dense(3)}};
      for (const Sequential& model : models) {
        INFO(describe(model));
        CheckedModel checked_model(model, {.threads = threads});
        checked_model.train({5, 2});
        checked_model.infer(4);
      }
    }
  }
}

TEST_CASE("what reads a normalization's clipped output leaves the derivative to the normalization") {
  const Tensor x = Input({6, 6, 3});
  const Tensor y = Activation(activations::relu6)(BatchNormalization()(Conv2D(16, 3, {.padding = Padding::same})(x)));
  const Tensor convolved = Conv2D(16, 3, {.padding = Padding::same})(y);
  const Tensor sum = Add()({convolved, y, AveragePooling2D(1)(y)});
  const Tensor pooled = MaxPooling2D()(ReLU()(BatchNormalization()(sum)));
  for (const Functional& model :
       {Functional(x, Dense(3)(Flatten()(pooled))), Functional(x, Dense(3)(GlobalAveragePooling2D()(y)))}) {
    INFO(describe(model));
    CheckedModel checked_model(model);
    checked_model.train({5, 2});
    checked_model.infer(4);
  }
}

TEST_CASE("BatchNormalization of more than the cache holds matches the reference") {
  const ActivationFunction function = GENERATE(activations::linear, relu, tanh_);
  for (const int channels : {32, 24}) {  // written past the cache where channels fill its lines
    const Sequential model{Input({96, 64, channels}), BatchNormalization(),     Activation(function),
                           BatchNormalization(),      GlobalAveragePooling2D(), Dense(3)};
    INFO(describe(model));
    CheckedModel checked_model(model, {.threads = channels == 32 ? 2 : 1});
    checked_model.train({8});
    checked_model.infer(8);
  }
}
