// The other layers and options, and what holds for all of them, against the reference: outputs, loss, and the gradients
// of all weights.
#include "backend/make_backend.hpp"
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

TEST_CASE("layers of sequences match the reference") {
  const std::vector<Layer> layers{
      Conv1D(8, 3),
      Conv1D(16, 4, {.padding = "causal", .dilation_rate = 2, .activation = tanh_}),
      Conv1D(5, 3, {.strides = 2, .padding = "causal"}),
      Conv1D(32, 7, {.strides = 3, .padding = "same", .groups = 16, .activation = sigmoid, .use_bias = false}),
      SeparableConv1D(6, 5, {.padding = "same", .depth_multiplier = 2, .activation = tanh_}),
      DepthwiseConv1D(3, {.padding = "same", .depth_multiplier = 2, .dilation_rate = 2, .activation = tanh_}),
      DepthwiseConv1D(4, {.strides = 3, .use_bias = false}),
      Conv1DTranspose(6, 3, {.strides = 2, .padding = "same", .activation = sigmoid}),
      Conv1DTranspose(16, 2, {.strides = 3}),
      Conv1DTranspose(5, 4, {.dilation_rate = 3, .use_bias = false}),
      MaxPooling1D(3, {.strides = 2, .padding = "same"}),
      AveragePooling1D(4),
  };
  const std::vector<Layer> lasts{Flatten(), GlobalMaxPooling1D(), GlobalMaxPooling1D({.keepdims = true}),
                                 GlobalAveragePooling1D({.keepdims = true})};
  std::size_t turn = 0;
  for (const Layer& layer : layers) {
    const CheckedModelOptions options{.threads = 1 + static_cast<int>(turn % 2)};
    check(Sequential(std::vector<Layer>{Input({30, 3}), Conv1D(16, 2, {.activation = tanh_}), layer,
                                        lasts[turn++ % lasts.size()], Flatten(), Dense(3)}),
          options);
  }
}

TEST_CASE("equal largest values share the gradient of global max pooling") {
  // Neighbouring windows have the same largest pixel, so pixels are equal.
  for (const ActivationFunction function : {relu, sigmoid}) {
    check(Sequential{Input({6, 5, 2}), Conv2D(16, 2, {.activation = function}), MaxPooling2D(4, {.strides = 1}),
                     Conv2D(20, 1), GlobalMaxPooling2D(), Dense(3)});
  }
}

TEST_CASE("pooling of all shapes matches the reference after all activations and layouts") {
  const std::array<std::pair<Size2D, Pooling2DOptions>, 8> shapes{{
      {2, {}},
      {3, {}},
      {3, {.strides = 1}},
      {3, {.strides = 2, .padding = Padding::same}},
      {2, {.strides = 1, .padding = Padding::same}},
      {{3, 1}, {.strides = {1, 2}}},
      {{2, 4}, {.strides = {3, 1}, .padding = Padding::same}},
      {5, {.strides = {2, 3}, .padding = Padding::same}},
  }};
  std::size_t turn = 0;
  for (const int channels : {1, 3, 16, 32, 33}) {
    for (const auto& [size, options] : shapes) {
      const ActivationFunction function = functions[turn++ % functions.size()];
      const Conv2D conv(channels, 2, {.activation = function});
      check(Sequential{Input({8, 7, 2}), conv, MaxPooling2D(size, options), Flatten(), Dense(3)});
      check(Sequential{Input({8, 7, 2}), conv, AveragePooling2D(size, options), Flatten(), Dense(3)});
      check(Sequential{Input({8, 7, 2}), conv, MaxPooling2D(size, options), Conv2D(4, 1), Flatten(), Dense(3)});
    }
    check(Sequential{Input({8, 7, 2}), Conv2D(channels, 2, {.activation = relu}), GlobalAveragePooling2D(), Dense(3)});
    check(Sequential{Input({8, 7, channels}), MaxPooling2D(3, {.strides = 2}), Flatten(), Dense(3)});
    check(Sequential{Input({8, 7, channels}), AveragePooling2D(), Conv2D(4, 2), GlobalAveragePooling2D(), Dense(3)});
  }
}

TEST_CASE("max pooling rejects windows of more than 255 pixels, average pooling accepts them") {
  const auto pooled = [](Layer pooling) {
    return Sequential{Input({17, 17, 1}), Conv2D(2, 2), std::move(pooling), Flatten(), Dense(2)};
  };
  CHECK_THROWS_AS(CheckedModel(pooled(MaxPooling2D(16))).train({2}), UsageError);
  check(pooled(MaxPooling2D(15)));
  check(pooled(AveragePooling2D(16)));
}

TEST_CASE("Dense of all activations, widths and batch sizes matches the reference") {
  for (const ActivationFunction function : functions) {
    for (const int units : {1, 16, 33}) {
      check(Sequential{Input({11}), Dense(units, {.activation = function, .use_bias = units != 16}),
                       Dense(4, {.activation = function}), Dense(3)});
    }
  }
  check(Sequential{Input({1}), Dense(1), Dense(2)});
  check(Sequential{Input({5, 3}), Flatten(), Dense(2)}, {.pixels = Pixels::bytes});
}

TEST_CASE("a Dense kernel in many chunks matches the reference") {
  const Sequential model{Input({9, 9, 1}), Conv2D(33, 2, {.activation = relu}), Flatten(),
                         Dense(19, {.activation = tanh_}), Dense(3)};
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{10000}, std::size_t{20000}}) {
    for (const std::size_t lag : {0, 1, 3}) {
      check(model, {.plan = {.chunk_bytes = chunk, .bucket_bytes = 4096, .update_lag = lag}});
    }
  }
  // A realistic kernel: several chunks of the default size.
  CheckedModel large(Sequential{Input({28, 28, 1}), Conv2D(16, 3, {.strides = 2, .activation = relu}), Flatten(),
                                Dense(128, {.activation = relu}), Dense(10)});
  CHECK(large.plan().buckets.size() >= 3);
  large.train({8});
  large.train({3});
  large.infer(8);
}

TEST_CASE("Dropout drops the reference's elements in every layout") {
  const CheckedModelOptions options{.seed = 77};
  check(around({Dropout(0.5)}), options);
  check(around({Conv2D(32, 2, {.activation = relu}), Dropout(0.25)}), options);
  check(around({Conv2D(33, 2, {.activation = tanh_}), MaxPooling2D(), Dropout(0.1)}), options);
  check(around({Conv2D(32, 2, {.activation = relu}), Flatten(), Dropout(0.3), Activation(tanh_), Dropout(0.9)}),
        options);
  check(around({Dropout(0.0)}), options);
  check(Sequential{Input({6}), Dropout(0.4), Dense(7, {.activation = sigmoid}), Dropout(0.5), Dense(3)}, options);
  check(around({Conv2D(32, 2, {.activation = activations::selu}), AlphaDropout(0.25), Conv2D(3, 1)}), options);
  check(around({AlphaDropout(0.0), Flatten(), AlphaDropout(0.6)}), options);
  CheckedModel replicas(around({Dropout(0.5)}), options);
  replicas.train({3, 0, 2, 2});
}

TEST_CASE("standalone activations match the reference at any position") {
  for (const ActivationFunction function : functions) {
    check(around({Activation(function)}));
    check(around({Activation(function), Activation(function)}));
    check(around({Conv2D(16, 2), Activation(function), MaxPooling2D()}));
    check(around({Conv2D(32, 2), MaxPooling2D(), Activation(function)}));
    check(around({Conv2D(32, 2), AveragePooling2D(), Activation(function), Conv2D(3, 1)}));
    check(around({Conv2D(32, 2), Flatten(), Activation(function)}));
    if (function != activations::exponential) {  // twice after a wide layer, it overflows
      check(around({Conv2D(32, 2), Flatten(), Activation(function), Dense(4), Activation(function)}));
    }
    check(around({Conv2D(32, 2), Dropout(0.5), Activation(function)}), {.tolerance = 1e-4});  // x - tanh(x) cancels
    check(Sequential{Input({6}), Activation(function), Dense(3)});
    check(Sequential{Input({3, 3, 2}), Activation(function), Conv2D(3, 2), Flatten(), Dense(3)});
  }
}

TEST_CASE("Reshape and Flatten work at any position") {
  check(Sequential{Input({28}), Reshape({7, 4, 1}), Conv2D(16, 2), Flatten(), Dense(3)});
  check(Sequential{Input({4, 7}), Flatten(), Reshape({7, 4, 1}), Flatten(), Reshape({2, 2, 7}), Conv2D(3, 1), Flatten(),
                   Dense(3)});
  check(around({Conv2D(32, 2, {.activation = relu}), Reshape({4, 8, 20}), Conv2D(16, 2), Reshape({-1}), Dense(5)}));
  check(around({Conv2D(32, 2), MaxPooling2D(), Reshape({8, 2, -1}), MaxPooling2D(2)}));
  check(around({Conv2D(32, 2), Reshape({20, 32}), BatchNormalization(), Activation(relu)}));
  check(around({Conv2D(32, 2), Reshape({32, 20}), Dropout(0.5), Activation(softmax), Reshape({4, 8, 20})}));
  check(around({Flatten(), Dense(48), Reshape({4, 4, 3}), Conv2D(16, 3, {.padding = Padding::same}), MaxPooling2D()}));
  check(around({Flatten(), Flatten(), Dropout(0.2), Flatten(), Dense(4)}));
}

TEST_CASE("Rescaling of bytes and floats matches the reference before any layer") {
  for (const Pixels pixels : {Pixels::bytes, Pixels::floats}) {
    const CheckedModelOptions options{.pixels = pixels};
    check(Sequential{Input({7, 6, 2}), Rescaling(1.0 / 127.5, -1), Conv2D(16, 2, {.activation = relu}), Flatten(),
                     Dense(3)},
          options);
    check(Sequential{Input({6, 4}), Rescaling(0.01), Reshape({6, 4, 1}), Rescaling(2, 0.5), Conv2D(3, 2), Flatten(),
                     Dense(3)},
          options);
    check(Sequential{Input({11}), Rescaling(-0.02, 0.25), Flatten(), Dense(3)}, options);
    check(Sequential{Input({5, 4, 3}), Rescaling(0.004), MaxPooling2D(), Conv2D(33, 1), Flatten(), Dense(3)}, options);
  }
}

TEST_CASE("models may end in any layer") {
  const CheckedModelOptions squares{.loss = MeanSquaredError()};
  const Conv2D conv(16, 2, {.activation = relu});
  check(Sequential{Input({6, 5, 2}), conv, Conv2D(3, 2)}, squares);
  check(Sequential{Input({6, 5, 2}), conv, Conv2D(32, 2, {.activation = sigmoid})}, squares);
  check(Sequential{Input({6, 5, 2}), conv, MaxPooling2D()}, squares);
  check(Sequential{Input({6, 5, 2}), conv, AveragePooling2D(), Activation(tanh_)}, squares);
  check(Sequential{Input({6, 5, 2}), conv, GlobalAveragePooling2D()}, squares);
  check(Sequential{Input({6, 5, 2}), conv, BatchNormalization()}, squares);
  check(Sequential{Input({6, 5, 2}), conv, Dropout(0.5)}, squares);
  check(Sequential{Input({6, 5, 2}), conv, Flatten()}, squares);
  check(Sequential{Input({6, 5, 2}), conv, Flatten(), Dropout(0.5)}, squares);
  check(Sequential{Input({6, 5, 2}), conv, Flatten(), Activation(sigmoid)}, squares);
  check(Sequential{Input({6, 5, 2}), conv, Reshape({4, 5, 16})}, squares);
  check(Sequential{Input({6, 5, 2}), conv, Activation(softmax)}, squares);
  check(Sequential{Input({6, 5, 2}), conv, GlobalAveragePooling2D()});
  check(Sequential{Input({6, 5, 2}), conv, Flatten(), Activation(softmax)}, {.loss = CategoricalCrossentropy()});
  check(Sequential{Input({6, 5, 2}), Flatten(), Activation(softmax)}, {.loss = CategoricalCrossentropy()});
}

TEST_CASE("all losses match the reference after all activations") {
  for (const ActivationFunction function : functions) {
    const auto ending_in = [&](int units) {
      return Sequential{Input({9}), Dense(8, {.activation = relu}), Dense(units, {.activation = function})};
    };
    check(ending_in(5), {.loss = SparseCategoricalCrossentropy({.from_logits = true})});
    check(ending_in(5), {.loss = CategoricalCrossentropy({.from_logits = true})});
    check(ending_in(5), {.loss = MeanSquaredError()});
    check(ending_in(1), {.loss = MeanSquaredError()});
    if (function != softmax && function != sigmoid) continue;  // others do not yield probabilities
    for (const Loss& loss : {Loss(SparseCategoricalCrossentropy()), Loss(CategoricalCrossentropy()),
                             Loss(CategoricalCrossentropy({.label_smoothing = 0.2})), Loss(BinaryCrossentropy()),
                             Loss(BinaryCrossentropy({.label_smoothing = 0.2}))}) {
      check(ending_in(5), {.loss = loss});
      check(Sequential{Input({9}), Dense(5), Activation(function)}, {.loss = loss});
      check(Sequential{Input({9}), Dense(5, {.activation = relu}), Activation(function)}, {.loss = loss});
      check(Sequential{Input({9}), Dense(5, {.activation = function}), Reshape({5})}, {.loss = loss});
    }
  }
}

TEST_CASE("two threads match one") {
  const CheckedModelOptions options{.capacity = 16, .threads = 2};
  const Sequential model{Input({9, 9, 3}),
                         Conv2D(32, 3, {.activation = relu}),
                         MaxPooling2D(),
                         BatchNormalization(),
                         Activation(relu),
                         Conv2D(33, 2, {.activation = sigmoid}),
                         AveragePooling2D(2, {.strides = 1}),
                         Dropout(0.3),
                         Flatten(),
                         Dense(24, {.activation = tanh_}),
                         Dense(3)};
  CheckedModel checked_model(model, options);
  checked_model.train({16});
  checked_model.train({9, 6});
  checked_model.train({1});
  checked_model.train({16});
  checked_model.infer(16);
  checked_model.infer(7);
}

TEST_CASE("every kind of layer stays within tolerance in bfloat16") {
  try {
    make_cpu_backend(1)->require_bfloat16();
  } catch (const UsageError& error) {
    WARN("skipped: " << error.what());
    return;
  }
  const auto near = [](const Sequential& model,
                       const Loss& loss = SparseCategoricalCrossentropy({.from_logits = true})) {
    check(model, {.loss = loss, .mixed_bfloat16 = true, .tolerance = 0.05});
  };
  near(Sequential{Input({6}), Dense(7, {.activation = tanh_}), Dense(16, {.activation = sigmoid}), Dense(3)});
  near(Sequential{Input({6}), Dense(7, {.activation = tanh_}), Dense(5, {.activation = softmax})},
       SparseCategoricalCrossentropy());
  for (const int channels : {1, 3, 16, 32, 33}) {
    const Conv2D conv(channels, 3, {.padding = Padding::same, .activation = tanh_});
    near(Sequential{Input({7, 6, 1}), conv, Conv2D(16, 2, {.activation = sigmoid}), Flatten(), Dense(3)});
    near(Sequential{Input({7, 6, channels}), conv, AveragePooling2D(3, {.strides = 2}), Flatten(), Dense(3)});
    near(Sequential{Input({7, 6, 3}), conv, BatchNormalization(), Activation(tanh_), GlobalAveragePooling2D(),
                    Dense(3)});
    near(Sequential{Input({7, 6, 3}), conv, Dropout(0.5), Flatten(), Dense(9, {.activation = sigmoid}), Dense(3)});
    near(Sequential{Input({7, 6, 3}), conv, Conv2D(channels, 2)}, MeanSquaredError());
    near(Sequential{Input({7, 6, 3}), conv, Flatten(), BatchNormalization(), Activation(tanh_), Dense(3)});
  }
  // A maximum or sign that rounds differently changes the gradients of a few elements.
  const CheckedModelOptions loose{.mixed_bfloat16 = true, .tolerance = 0.15};
  check(Sequential{Input({7, 6, 1}), Conv2D(32, 3, {.activation = relu}), MaxPooling2D(), Flatten(), Dense(3)}, loose);
  check(Sequential{Input({7, 6, 3}), Conv2D(16, 3), BatchNormalization(), Activation(relu),
                   MaxPooling2D(3, {.strides = 1}), Flatten(), Dense(3)},
        loose);
}
