// Models and optimizers for the tests of tensor parallelism, and settings that select a sharding.
#pragma once

#include "support/models.hpp"

#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/losses/losses.hpp>
#include <lockstep/optimizers/optimizers.hpp>

#include <string>
#include <vector>

namespace lockstep::testing {

/// The loss of models that do not end with softmax.
inline const SparseCategoricalCrossentropy logits({.from_logits = true});

/// Links that lead to different shardings: two cheap ones, with which only the last layers are tensor parallel, an
/// ordinary one, and an expensive one.
inline const std::vector<std::string> links{"1e-9,1e13,1e9", "1e-9,1e8,1e9", "5e-5,1.25e8,1e11", "1e-3,1e5,1e13"};

/// All layers, with numbers of channels and units that are divisible by the ranks, not divisible, or less than the
/// ranks. L1 acts on weights far from 0 only, where its sign does not depend on rounding.
inline const std::vector<Sequential> models{
    many_kinds_of_layers(),
    Sequential{Input({9, 9, 2}), Conv2D(13, 3, {.use_bias = false}), BatchNormalization(), Activation(relu),
               Dropout(0.25), MaxPooling2D(), Flatten(), Dropout(0.2), Dense(6, {.activation = sigmoid}), Dense(5)},
    Sequential{Input({9, 8, 1}), Conv2D(33, 3, {.padding = Padding::same, .activation = relu}), MaxPooling2D(),
               Conv2D(17, 2, {.activation = relu}), GlobalAveragePooling2D(), Dense(7, {.use_bias = false}),
               Activation(sigmoid), Dense(3, {.activation = softmax})},
    Sequential{Input({12}), Dense(24, {.activation = relu}), Dense(17, {.activation = activations::tanh}),
               BatchNormalization({.synchronized = true}), Dense(31, {.use_bias = false}), Activation(sigmoid),
               Dropout(0.4), Dense(21, {.activation = softmax}), Dense(9, {.activation = activations::tanh}), Dense(4)},
    Sequential{Input({8, 8, 2}), Conv2D(16, 3, {.activation = relu, .kernel_regularizer = L2(0.05)}),
               BatchNormalization({.gamma_regularizer = L1(0.02)}), Flatten(),
               Dense(24, {.kernel_regularizer = L2(0.02), .bias_regularizer = L2(0.1)}),
               Dense(5, {.kernel_regularizer = L2(0.03)})},
    Sequential{Input({6, 2}), Reshape({12}), Dense(3, {.activation = activations::tanh}), Dense(2), Dense(3)},
    Sequential{Input({7, 7, 2}), SeparableConv2D(12, 3, {.activation = activations::tanh}), DepthwiseConv2D(2),
               Conv2DTranspose(5, 2, {.activation = sigmoid}), GlobalAveragePooling2D(), Dense(8), Dense(4)},
    Sequential{Input({4, 4, 3}), Conv2D(2, 2, {.activation = relu}), Reshape({9, 2}), Dropout(0.1), Flatten(),
               Dense(3)},
    partly_frozen(),
};

struct ShardedModel {
  Sequential model;
  std::string code;
  std::string after_data_parallel = {};  ///< a code in which the convolution's input comes from data-parallel layers
};

/// Row-parallel convolutions (code r), whose ranks take slices of the input channels: in blocks of 16 and of 8; of five
/// and seven channels with padding, strides and dilation; after a layer with partial gradients; of two channels, so
/// that one of three ranks has none; and a model whose layers are all sharded.
inline const std::vector<ShardedModel> row_parallel_models{
    {{Input({12, 12, 1}), Conv2D(48, 3, {.activation = activations::tanh}), AveragePooling2D(),
      Conv2D(32, 3, {.padding = Padding::same, .activation = sigmoid}), BatchNormalization(), Dropout(0.3), Flatten(),
      Dense(20, {.activation = activations::tanh}), Dense(4)},
     "accraacra",
     "eeeraacra"},
    {{Input({9, 9, 2}), Conv2D(5, 3, {.use_bias = false}), MaxPooling2D(), Conv2D(7, 2, {.padding = Padding::same}),
      BatchNormalization(), Dropout(0.2), Flatten(), Dense(4)},
     "accraaaa",
     "eeeraaaa"},
    {{Input({9, 9, 2}), Conv2D(6, 3, {.activation = sigmoid}), BatchNormalization({.synchronized = true}), Conv2D(7, 2),
      Dropout(0.2), Activation(activations::tanh), Conv2D(5, Size2D(2, 3), {.strides = 2, .padding = Padding::same}),
      Dropout(0.1), Conv2D(3, Size2D(1, 2), {.activation = activations::tanh, .use_bias = false}),
      GlobalAveragePooling2D(), Dense(4)},
     "appcccraaaaa",
     "eeeraaccraaa"},
    {{Input({10, 10, 1}), Conv2D(2, 3, {.activation = activations::tanh}), Conv2D(16, 3, {.dilation_rate = 2}),
      Conv2D(8, 2, {.activation = activations::tanh}), Conv2D(24, 2, {.activation = sigmoid}), Flatten(), Dense(4)},
     "acrcraa",
     "eercraa"},
    {{Input({8, 8, 1}), Conv2D(16, 3), Activation(activations::tanh), Conv2D(4, 3, {.activation = softmax}),
      AveragePooling2D(), Conv2D(7, 2, {.activation = sigmoid}), Flatten(), Dense(4)},
     "acraacra",
     "eeraacra"},
};

inline const std::vector<Optimizer> optimizers{
    SGD({.learning_rate = 0.1}),
    SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}),
    Adam({.learning_rate = 0.01, .epsilon = 1e-4}),
    AdamW({.learning_rate = 0.01, .weight_decay = 0.01, .epsilon = 1e-4}),
    RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3, .centered = true}),
};

}  // namespace lockstep::testing
