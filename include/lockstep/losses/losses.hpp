// Loss functions, under Keras' names.
#pragma once

#include <lockstep/losses/crossentropy.hpp>
#include <lockstep/losses/mean_squared_error.hpp>

#include <string_view>
#include <variant>

namespace lockstep {

using Loss = std::variant<SparseCategoricalCrossentropy, CategoricalCrossentropy, MeanSquaredError>;

/// "sparse_categorical_crossentropy", ...: the function's name in Keras.
[[nodiscard]] std::string_view keras_name(const Loss& loss) noexcept;

}  // namespace lockstep
