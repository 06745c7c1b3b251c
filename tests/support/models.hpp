// The architectures of models/*.cpp.
#pragma once

#include <lockstep/nn/layers.hpp>
#include <lockstep/nn/sequential.hpp>

namespace lockstep::testing {

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

}  // namespace lockstep::testing
