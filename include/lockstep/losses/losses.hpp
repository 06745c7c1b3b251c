// Loss functions, under Keras' names.
#pragma once

#include <lockstep/losses/binary_crossentropy.hpp>
#include <lockstep/losses/crossentropy.hpp>
#include <lockstep/losses/hinge.hpp>
#include <lockstep/losses/probabilistic.hpp>
#include <lockstep/losses/reduction.hpp>
#include <lockstep/losses/regression.hpp>

#include <string_view>
#include <variant>

namespace lockstep {

using Loss = std::variant<SparseCategoricalCrossentropy, CategoricalCrossentropy, CategoricalFocalCrossentropy,
                          BinaryCrossentropy, BinaryFocalCrossentropy, MeanSquaredError, MeanAbsoluteError,
                          MeanAbsolutePercentageError, MeanSquaredLogarithmicError, Huber, LogCosh, CosineSimilarity,
                          KLDivergence, Poisson, Hinge, SquaredHinge, CategoricalHinge>;

/// "sparse_categorical_crossentropy", ...: the function's name in Keras.
[[nodiscard]] std::string_view keras_name(const Loss& loss) noexcept;

}  // namespace lockstep
