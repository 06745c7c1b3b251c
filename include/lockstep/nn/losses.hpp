// Loss functions and metrics, under Keras' names.
#pragma once

#include <string_view>
#include <variant>

namespace lockstep {

struct CrossentropyOptions {
  bool from_logits = false;  ///< false: the model's output is probabilities, clipped to [1e-7, 1 - 1e-7]
};

/// Targets are class indices. From logits: logsumexp(z) - z[y].
struct SparseCategoricalCrossentropy : CrossentropyOptions {
  explicit SparseCategoricalCrossentropy(CrossentropyOptions options = {}) : CrossentropyOptions(options) {}
};

/// Targets are distributions over the classes (one-hot, say).
struct CategoricalCrossentropy : CrossentropyOptions {
  explicit CategoricalCrossentropy(CrossentropyOptions options = {}) : CrossentropyOptions(options) {}
};

/// The mean over a target's elements of (y - prediction)^2.
struct MeanSquaredError {};

using Loss = std::variant<SparseCategoricalCrossentropy, CategoricalCrossentropy, MeanSquaredError>;

/// "sparse_categorical_crossentropy", ...
[[nodiscard]] std::string_view name_of(const Loss& loss) noexcept;

/// `accuracy`: the share of examples whose largest output is the (largest) target's.
enum class Metric { accuracy };

inline constexpr auto accuracy = Metric::accuracy;

[[nodiscard]] std::string_view name_of(Metric metric) noexcept;

}  // namespace lockstep
