// Models and links for the tests of sharding, and the search's result as a code.
#pragma once

#include "parallel/cost_model.hpp"
#include "parallel/sharding.hpp"

#include "graph/lower.hpp"
#include "support/models.hpp"

#include <lockstep/layers/sequential.hpp>

#include <cstddef>
#include <string>

namespace lockstep::testing::sharding {

inline const SparseCategoricalCrossentropy logits({.from_logits = true});

inline const Sequential keras_mnist = testing::keras_mnist();
inline const Sequential custom_training_mnist = testing::custom_training_mnist();

/// Links from free to very slow.
inline const HardwareModel free_link{.latency = 0, .bytes_per_second = 1e15, .flops_per_second = 1e9};
inline const HardwareModel fast_link{.latency = 1e-6, .bytes_per_second = 1e9, .flops_per_second = 1e10};
inline const HardwareModel ordinary_link{.latency = 1e-4, .bytes_per_second = 1.25e8, .flops_per_second = 1e11};
inline const HardwareModel slow_link{.latency = 1e-3, .bytes_per_second = 1e4, .flops_per_second = 1e13};

inline Graph graph_of(const Sequential& model) { return lower(model, logits, Precision::float32); }

inline const Sequential deep_convolutions{Input({32, 32, 3}),
                                          Conv2D(64, 3, {.activation = relu}),
                                          BatchNormalization(),
                                          Conv2D(64, 3, {.activation = relu}),
                                          MaxPooling2D(),
                                          Conv2D(64, 3, {.activation = relu}),
                                          MaxPooling2D(),
                                          Flatten(),
                                          Dropout(0.5),
                                          Dense(1024, {.activation = relu}),
                                          Dense(10)};

/// The last convolutions have many weights and few outputs.
inline const Sequential wide_end{Input({16, 16, 16}),
                                 Conv2D(64, 3, {.activation = relu}),
                                 Conv2D(256, 3, {.strides = 2, .activation = relu}),
                                 BatchNormalization(),
                                 Conv2D(256, 3, {.strides = 2, .activation = relu}),
                                 GlobalAveragePooling2D(),
                                 Dense(10)};

/// The splits of the cheapest sharding, from gather to the loss: = replicated, ~ replicated with a partial gradient,
/// | column, - row, e batch. "none" if the model cannot be sharded.
inline std::string splits_of(const Sequential& model, const HardwareModel& hardware, int ranks = 2) {
  const auto sharding = search_sharding(graph_of(model), ranks, 128, hardware);
  if (!sharding) return "none";
  std::string text;
  for (const Split split : sharding->splits) text += "=~|-e"[static_cast<std::size_t>(split)];
  return text;
}

}  // namespace lockstep::testing::sharding
