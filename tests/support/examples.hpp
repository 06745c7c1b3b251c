// Random examples for a model, in the forms that Lockstep and the reference read, and error measures for their results.
#pragma once

#include "support/reference_layers.hpp"

#include <lockstep/data/dataset.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/losses/losses.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::testing {

enum class Pixels { floats, bytes };

struct Examples {
  Dataset data;
  reference::Values inputs;  ///< data.inputs as a step converts them: of each example, all inputs in the model's order
  reference::Values targets;
  std::size_t input_width = 0;
  std::size_t target_width = 0;

  /// Inputs and targets of these examples, in this order.
  [[nodiscard]] reference::Values inputs_of(std::span<const std::uint32_t> examples) const;
  [[nodiscard]] reference::Values targets_of(std::span<const std::uint32_t> examples) const;
};

/// Floats are uniform in [-1, 1). Arrays of several inputs have the inputs' names. Targets suit the loss: class
/// indices, distributions, or floats in [-1, 1).
[[nodiscard]] Examples make_examples(const Architecture& model, const Loss& loss, std::size_t count, std::uint64_t seed,
                                     Pixels pixels = Pixels::floats);

/// The L2 norm.
[[nodiscard]] double norm(std::span<const double> values);
[[nodiscard]] double distance(std::span<const float> found, std::span<const double> expected);

/// The L2 distance relative to the norm of `expected`.
[[nodiscard]] double relative_error(std::span<const float> found, std::span<const double> expected);

}  // namespace lockstep::testing
