// What a model does with the numbers of its input: bytes and integers.
#pragma once

#include <lockstep/layers/architecture.hpp>

namespace lockstep {

/// By what bytes are multiplied before a model reads them: 1, as in Keras, if it has an Input of integers or a layer
/// that scales (Rescaling, Normalization) or looks up (Embedding) before any weights are applied; otherwise 1/255.
/// `flattened`: without nested models.
[[nodiscard]] double byte_scale_of(const Architecture& flattened);

/// Throws UsageError if the model has an Input of integers that a layer reads with which Keras then computes in
/// integers, or fails. Embedding, Rescaling and Dense make floats of integers first.
void check_integer_input(const Architecture& flattened);

}  // namespace lockstep
