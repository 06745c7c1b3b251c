// Architectures that several tests train: those of models/*.cpp, and one with many kinds of layers.
#pragma once

#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/sequential.hpp>

namespace lockstep::testing {

/// The layer, not trainable.
template <typename L>
[[nodiscard]] L frozen(L layer) {
  layer.trainable = false;
  return layer;
}

[[nodiscard]] inline Sequential keras_mnist() {
  return Sequential{Input({28, 28}),
                    Reshape({28, 28, 1}),
                    Conv2D(32, 3, {.activation = relu}),
                    Flatten(),
                    Dense(128, {.activation = relu}),
                    Dense(10)};
}

[[nodiscard]] inline Sequential custom_training_mnist() {
  return Sequential{Input({28, 28, 1}),
                    Conv2D(32, 3, {.activation = relu}),
                    MaxPooling2D(),
                    Conv2D(64, 3, {.activation = relu}),
                    MaxPooling2D(),
                    Flatten(),
                    Dense(64, {.activation = relu}),
                    Dense(10)};
}

/// Has layers that depend on an example's position in the batch, every kind of variable, and a Dense kernel of several
/// buckets.
[[nodiscard]] inline Sequential many_kinds_of_layers() {
  return Sequential{Input({8, 8, 1}),   Conv2D(16, 3, {.activation = activations::tanh}),
                    AveragePooling2D(), BatchNormalization(),
                    Dropout(0.3),       Conv2D(32, 2, {.activation = sigmoid}),
                    Flatten(),          Dense(300, {.activation = activations::tanh}),
                    Dropout(0.5),       Dense(4)};
}

/// Layers of every kind that are not trainable, before and after the first trainable one.
[[nodiscard]] inline Sequential partly_frozen() {
  return Sequential{Input({8, 8, 1}),
                    frozen(Conv2D(16, 3, {.activation = activations::tanh})),
                    frozen(BatchNormalization()),
                    Conv2D(12, 2, {.activation = sigmoid}),
                    frozen(BatchNormalization()),
                    frozen(Conv2D(16, 2, {.padding = Padding::same})),
                    Activation(activations::tanh),
                    Flatten(),
                    frozen(Dense(30, {.activation = activations::tanh})),
                    Dense(20, {.activation = activations::tanh}),
                    frozen(Dense(4))};
}

}  // namespace lockstep::testing
