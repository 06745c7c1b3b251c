// What the tests of layers share: a model around the layers under test, and its training beside the reference.
#pragma once

#include "checked_model.hpp"
#include "layers/activation_functions.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <array>
#include <utility>
#include <vector>

namespace lockstep::testing {

inline constexpr auto tanh_ = activations::tanh;
inline constexpr std::array functions = named_activations();

/// Trains and infers full batches, partial ones, and full ones again, in one or several microbatches.
inline void check(const Architecture& model, const CheckedModelOptions& options = {}) {
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

/// The layers after a convolution, whose weights check their input gradients, and before a Dense.
inline Sequential around(std::vector<Layer> layers, Shape input = {7, 6, 2}) {
  layers.insert(layers.begin(), Input(std::move(input)));
  layers.insert(layers.begin() + 1, Conv2D(5, 2, {.activation = tanh_, .name = "before"}));
  layers.push_back(Flatten());
  layers.push_back(Dense(3, {.name = "after"}));
  return Sequential(std::move(layers));
}

}  // namespace lockstep::testing
