// Clipping, regularizers and constraints against the reference.
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
  // The penalty reads probabilities, so the loss must, too.
  check(Sequential{Input({9}), Dense(5, {.activation = softmax, .activity_regularizer = both})},
        {.loss = SparseCategoricalCrossentropy({.clips_probabilities = true})});
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
