// How the losses of a batch's examples become one number.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Of the losses of the global batch, each multiplied by its example's weight (Dataset::sample_weights).
enum class Reduction : std::uint8_t {
  sum_over_batch_size,      ///< their sum, divided by the number of examples
  sum,                      ///< their sum
  mean_with_sample_weight,  ///< their sum, divided by the sum of the weights
};

/// "sum_over_batch_size", ...: Keras' name.
[[nodiscard]] std::string_view keras_name(Reduction reduction) noexcept;

}  // namespace lockstep
