// Every layer and option against the reference: outputs, loss, and the gradients of all weights. Weights of an earlier
// layer check the input gradients. One file, because all cases share its models and its lists of activations.
#include "backend/make_backend.hpp"
#include "checked_model.hpp"
#include "layers/activation_functions.hpp"
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

namespace {

constexpr auto tanh_ = activations::tanh;
constexpr std::array functions = named_activations();
/// One of each kind: none, a fused one of oneDNN, one that is not fused, one that is no elementwise function.
constexpr std::array some_functions{activations::linear, activations::relu, activations::elu, activations::silu,
                                    softmax};

/// Trains and infers full batches, partial ones, and full ones again, in one or several microbatches.
void check(const Architecture& model, const CheckedModelOptions& options = {}) {
  INFO(describe(model));
  CheckedModel checked_model(model, options);
  try {
    checked_model.train({8});
  } catch (const UsageError& error) {
    if (is_refusal_of_gpus(error)) return;
    throw;
  }
  checked_model.infer(5);
  checked_model.train({3});
  checked_model.train({8});
  checked_model.infer(8);
  checked_model.train({1});
}

Sequential around(std::vector<Layer> layers, Shape input = {7, 6, 2}) {
  layers.insert(layers.begin(), Input(std::move(input)));
  layers.insert(layers.begin() + 1, Conv2D(5, 2, {.activation = tanh_, .name = "before"}));
  layers.push_back(Flatten());
  layers.push_back(Dense(3, {.name = "after"}));
  return Sequential(std::move(layers));
}

struct ConvolutionCase {
  Size2D kernel;
  Size2D strides;
  Size2D dilation;
  Padding padding;
};

const std::array convolution_cases{
    ConvolutionCase{3, 1, 1, Padding::valid},     ConvolutionCase{3, 1, 1, Padding::same},
    ConvolutionCase{3, 2, 1, Padding::same},      ConvolutionCase{1, 1, 1, Padding::valid},
    ConvolutionCase{3, 2, 1, Padding::valid},     ConvolutionCase{{3, 2}, {2, 1}, 1, Padding::same},
    ConvolutionCase{3, 1, 2, Padding::same},      ConvolutionCase{2, 1, {1, 2}, Padding::valid},
    ConvolutionCase{5, {1, 3}, 1, Padding::same}, ConvolutionCase{{1, 4}, 1, {1, 2}, Padding::same},
    ConvolutionCase{4, 3, 1, Padding::same},      ConvolutionCase{{2, 3}, 1, {3, 2}, Padding::same},
};

}  // namespace

TEST_CASE("convolutions of all widths match the reference, first in a model and after another one") {
  std::size_t turn = 0;
  for (const int in : {1, 3, 5, 16, 32, 33}) {
    for (const int out : {1, 3, 5, 8, 16, 32, 33}) {
      const ConvolutionCase& c = convolution_cases[turn % convolution_cases.size()];
      const Conv2D conv(out, c.kernel,
                        {.strides = c.strides,
                         .padding = c.padding,
                         .dilation_rate = c.dilation,
                         .activation = functions[turn % functions.size()],
                         .use_bias = turn % 3 != 0});
      ++turn;
      INFO("turn " << turn);
      const CheckedModelOptions options{.pixels = turn % 2 == 0 ? Pixels::bytes : Pixels::floats};
      check(Sequential{Input({7, 6, in}), conv, Flatten(), Dense(3)}, options);
      check(Sequential{Input({7, 6, 2}), Conv2D(in, 1, {.activation = functions[turn % 4]}), conv, Flatten(), Dense(3)},
            options);
    }
  }
}

TEST_CASE("convolutions with every stride, dilation, padding and activation match the reference") {
  for (const ConvolutionCase& c : convolution_cases) {
    for (const ActivationFunction function : some_functions) {
      check(around({Conv2D(16, c.kernel,
                           {.strides = c.strides,
                            .padding = c.padding,
                            .dilation_rate = c.dilation,
                            .activation = function,
                            .use_bias = function != activations::relu})}));
    }
  }
}

// oneDNN 3.7 has a kernel that computes these wrong.
TEST_CASE("strided convolutions of one channel that yield a single column match the reference") {
  for (const int stride : {2, 3}) {
    for (const int rows : {1, 4}) {
      CAPTURE(stride, rows);
      check(Sequential{Input({6, 4, 1}), Conv2D(5, {rows, 3}, {.strides = {1, stride}}), Flatten(), Dense(4)});
    }
  }
}

TEST_CASE("grouped, depthwise, separable and transposed convolutions match the reference") {
  std::size_t turn = 0;
  for (const ConvolutionCase& c : convolution_cases) {
    const ActivationFunction function = functions[turn % functions.size()];
    const bool use_bias = turn % 3 != 0;
    const int multiplier = turn % 4 == 0 ? 2 : 1;
    const int channels = std::array{16, 5, 24, 32}[turn % 4];
    ++turn;
    INFO("turn " << turn);
    const std::vector<Layer> layers{
        Conv2D(2 * channels, c.kernel,
               {.strides = c.strides,
                .padding = c.padding,
                .dilation_rate = c.dilation,
                .groups = channels % 4 == 0 ? 4 : channels,
                .activation = function,
                .use_bias = use_bias}),
        DepthwiseConv2D(c.kernel, {.strides = c.strides,
                                   .padding = c.padding,
                                   .depth_multiplier = multiplier,
                                   .dilation_rate = c.dilation,
                                   .activation = function,
                                   .use_bias = use_bias}),
        SeparableConv2D(7, c.kernel,
                        {.strides = c.strides,
                         .padding = c.padding,
                         .dilation_rate = c.dilation,
                         .depth_multiplier = multiplier,
                         .activation = function,
                         .use_bias = use_bias}),
        Conv2DTranspose(6, c.kernel,
                        {.strides = c.strides,
                         .padding = c.padding,
                         .dilation_rate = c.dilation,
                         .activation = function,
                         .use_bias = use_bias}),
    };
    for (const Layer& layer : layers) {
      check(Sequential(std::vector<Layer>{Input({7, 6, 2}), Conv2D(channels, 1, {.activation = tanh_}), layer,
                                          Flatten(), Dense(3)}),
            {.threads = 1 + static_cast<int>(turn % 2)});
    }
  }
}

TEST_CASE("strided depthwise and grouped convolutions of one pixel match the reference on two threads") {
  for (const int channels : {3, 8, 24}) {
    check(Sequential{Input({9, 8, channels}), DepthwiseConv2D(1, {.strides = 2}), Conv2D(6, 1, {.strides = 2}),
                     Conv2D(9, 1, {.strides = 2, .groups = 3}), Flatten(), Dense(3)},
          {.threads = 2});
  }
}

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
  // Neighbouring windows have the same largest cell, so pixels are equal.
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

TEST_CASE("max pooling rejects windows of more than 255 cells, average pooling accepts them") {
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

TEST_CASE("clipping matches the reference across many buckets and chunks") {
  const Sequential model = around({Flatten(), Dense(40, {.activation = tanh_}), BatchNormalization()});
  const PlanOptions cut{.chunk_bytes = 512, .bucket_bytes = 256, .update_lag = 1};
  for (const Optimizer& optimizer :
       {Optimizer(SGD({.learning_rate = 0.5, .clipnorm = 0.02})),
        Optimizer(SGD({.learning_rate = 0.5, .momentum = 0.5, .global_clipnorm = 0.02})),
        Optimizer(SGD({.learning_rate = 0.5, .clipvalue = 1e-3})), Optimizer(Adam({.clipnorm = 1e6}))}) {
    INFO(keras_name(clipping_of(optimizer).kind));
    CheckedModel checked_model(model, {.optimizer = optimizer, .plan = cut});
    for (const std::int64_t count : {8, 8, 8, 3, 8}) {  // on a GPU: eager, captured and replayed
      checked_model.train({count});
      const bool clips = clipping_of(optimizer).bound < 1;
      CHECK((checked_model.reference().clipped_gradients() != checked_model.reference().gradients()) == clips);
    }
  }
}

TEST_CASE("regularizers add their penalty to the loss, and its derivative to the gradient before clipping") {
  const Regularizer both = L1L2(0.02, 0.03);
  const Sequential model{Input({7, 6, 2}),
                         Conv2D(5, 2, {.kernel_regularizer = L2(0.05), .bias_regularizer = L1(0.04)}),
                         BatchNormalization({.beta_regularizer = both, .gamma_regularizer = "l2"}),
                         Activation(tanh_),
                         Flatten(),
                         Dense(3, {.kernel_regularizer = both, .bias_regularizer = both})};
  const PlanOptions cut{.chunk_bytes = 512, .bucket_bytes = 256, .update_lag = 1};
  for (const Optimizer& optimizer :
       {Optimizer(SGD({.learning_rate = 0.5})), Optimizer(SGD({.learning_rate = 0.5, .clipnorm = 0.02})),
        Optimizer(SGD({.learning_rate = 0.5, .clipvalue = 1e-3})),
        Optimizer(SGD({.learning_rate = 0.5, .global_clipnorm = 0.02, .gradient_accumulation_steps = 2}))}) {
    INFO(keras_name(clipping_of(optimizer).kind));
    check(model, {.optimizer = optimizer});
    check(model, {.optimizer = optimizer, .plan = cut});
    check(model, {.optimizer = optimizer, .threads = 2});
  }
  check(Sequential{Input({6, 6, 3}), DepthwiseConv2D(2, {.depthwise_regularizer = both, .bias_regularizer = both}),
                   SeparableConv2D(4, 2, {.depthwise_regularizer = both, .pointwise_regularizer = both}),
                   Conv2DTranspose(3, 2, {.kernel_regularizer = both}), PReLU({.alpha_regularizer = both}),
                   LayerNormalization({.beta_regularizer = both, .gamma_regularizer = both}),
                   GroupNormalization(1, {.gamma_regularizer = both}), Flatten(), Dense(3)});
  check(Sequential{Input({9}), Embedding(256, 4, {.embeddings_regularizer = both}),
                   Conv1D(3, 2, {.kernel_regularizer = both}), SeparableConv1D(3, 2, {.pointwise_regularizer = both}),
                   Flatten(), Dense(3)},
        {.pixels = Pixels::bytes});
}

TEST_CASE("activity regularizers add the penalty of outputs, divided by the batch, to the loss") {
  const Regularizer both = L1L2(0.02, 0.03);
  const ActivityRegularization layer({.l1 = 0.01, .l2 = 0.02});
  for (const ActivationFunction function :
       {activations::linear, activations::relu, tanh_, activations::silu, softmax}) {
    check(Sequential{Input({7, 6, 2}), Conv2D(16, 2, {.activation = function, .activity_regularizer = both}),
                     MaxPooling2D(), Conv2D(5, 1, {.activity_regularizer = L1(0.04)}), Flatten(),
                     Dense(3, {.activity_regularizer = "l2"})});
    check(around({layer, Conv2D(32, 2, {.activation = function}), layer, Flatten(), layer, layer}), {.threads = 2});
    check(Sequential{Input({9}), Dense(5, {.activation = function, .activity_regularizer = both})},
          {.loss = MeanSquaredError()});
  }
  // The penalty reads probabilities, so the loss does, too.
  check(Sequential{Input({9}), Dense(5, {.activation = softmax, .activity_regularizer = both})},
        {.loss = SparseCategoricalCrossentropy()});
  check(Sequential{Input({9}), layer, Dense(5), layer}, {.loss = MeanSquaredError()});
  check(Sequential{Input({4, 3}), Flatten(), layer, Reshape({3, 4, 1}), layer, Conv2D(3, 2), Flatten(), Dense(3)},
        {.pixels = Pixels::bytes});
  check(
      around({DepthwiseConv2D(2, {.activity_regularizer = both}), SeparableConv2D(4, 2, {.activity_regularizer = both}),
              Conv2DTranspose(3, 2, {.activity_regularizer = both})}));
  check(Sequential{Input({9}), Embedding(256, 4, {.activity_regularizer = both}),
                   Conv1D(3, 2, {.activity_regularizer = both}), SeparableConv1D(3, 2, {.activity_regularizer = both}),
                   DepthwiseConv1D(2, {.activity_regularizer = both}),
                   Conv1DTranspose(3, 2, {.activity_regularizer = both}), Flatten(), Dense(3)},
        {.pixels = Pixels::bytes});
  // Neither weights of examples nor the loss's reduction count for it.
  check(Sequential{Input({9}), Dense(5, {.activity_regularizer = both}), Dense(3)}, {.weighted = true});
  check(Sequential{Input({9}), Dense(5, {.activity_regularizer = both}), Dense(3)},
        {.loss = SparseCategoricalCrossentropy({.from_logits = true, .reduction = Reduction::sum})});
}

TEST_CASE("layers that are not trainable penalize their outputs all the same") {
  Conv2D frozen(5, 2, {.activity_regularizer = L1L2(0.1, 0.2)});
  frozen.trainable = false;
  check(Sequential{Input({7, 6, 2}), Conv2D(4, 2), frozen, Flatten(), Dense(3)});
  check(Sequential{Input({7, 6, 2}), frozen, Flatten(), Dense(3)});
}

TEST_CASE("regularizers of layers that are not trainable do nothing") {
  Conv2D frozen(5, 2, {.kernel_regularizer = L2(0.5)});
  frozen.trainable = false;
  check(Sequential{Input({7, 6, 2}), frozen, Flatten(), Dense(3)});
}

TEST_CASE("constraints hold after every update, in every layout and plan") {
  const std::vector<int> filters{0, 1, 2};
  const Sequential model{
      Input({7, 6, 2}),
      Conv2D(32, 2, {.activation = tanh_, .kernel_constraint = MaxNorm(0.5, filters), .bias_constraint = NonNeg()}),
      Conv2D(16, 3, {.activation = tanh_, .kernel_constraint = UnitNorm()}),
      BatchNormalization({.beta_constraint = "non_neg", .gamma_constraint = MinMaxNorm(0.2, 0.8, 0.5)}),
      Flatten(),
      Dense(33, {.activation = tanh_, .kernel_constraint = "max_norm"}),
      Dense(3, {.kernel_constraint = MinMaxNorm(0.5, 1, 0.75, {-1}), .bias_constraint = MaxNorm(0.01, {})})};
  const PlanOptions cut{.chunk_bytes = 512, .bucket_bytes = 256, .update_lag = 1};
  for (const Optimizer& optimizer :
       {Optimizer(SGD({.learning_rate = 0.5})), Optimizer(SGD({.learning_rate = 0.5, .clipnorm = 0.1})),
        Optimizer(Adam({.learning_rate = 0.05})),
        Optimizer(SGD({.learning_rate = 0.5, .gradient_accumulation_steps = 2}))}) {
    check(model, {.optimizer = optimizer});
    check(model, {.optimizer = optimizer, .plan = cut});
  }
  check(Sequential{Input({6, 6, 3}),
                   DepthwiseConv2D(2, {.depthwise_constraint = MaxNorm(0.1, {0, 1}), .bias_constraint = NonNeg()}),
                   SeparableConv2D(16, 2, {.depthwise_constraint = NonNeg(), .pointwise_constraint = UnitNorm({-2})}),
                   Conv2DTranspose(3, 2, {.kernel_constraint = UnitNorm({0, 1, 3})}),
                   PReLU({.alpha_constraint = MaxNorm(0.1)}),
                   LayerNormalization({.beta_constraint = NonNeg(), .gamma_constraint = MaxNorm(1)}),
                   GroupNormalization(1, {.gamma_constraint = UnitNorm()}), Flatten(), Dense(3)},
        {.optimizer = SGD({.learning_rate = 0.5})});
  check(Sequential{Input({9}), Embedding(256, 4, {.embeddings_constraint = UnitNorm({1})}),
                   DepthwiseConv1D(2, {.depthwise_constraint = MaxNorm(0.1)}),
                   Conv1D(3, 2, {.kernel_constraint = NonNeg()}),
                   SeparableConv1D(3, 2, {.pointwise_constraint = MaxNorm(0.5, {0, 1})}),
                   Conv1DTranspose(3, 2, {.kernel_constraint = MaxNorm(0.5, {0, 2})}), Flatten(), Dense(3)},
        {.optimizer = SGD({.learning_rate = 0.5}), .pixels = Pixels::bytes});
  Dense frozen(5, {.kernel_constraint = UnitNorm()});
  frozen.trainable = false;
  check(Sequential{Input({6}), frozen, Dense(3)});
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

TEST_CASE("strided 1 x 1 convolutions of few channels match the reference") {
  for (const int channels : {1, 3, 8, 16, 24}) {
    for (const int threads : {1, 2}) {
      CAPTURE(channels, threads);
      check(Sequential{Input({12, 12, 3}), Conv2D(channels, 3, {.padding = "same"}), Conv2D(16, 1, {.strides = 2}),
                       GlobalAveragePooling2D(), Dense(3)},
            {.threads = threads});
    }
  }
}
