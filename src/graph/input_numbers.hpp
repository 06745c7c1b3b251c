// What a model does with the numbers of its inputs: bytes and integers.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <cstddef>

namespace lockstep {

/// By what the bytes of an input are multiplied before the model reads them: 1, as in Keras, if it is an Input of
/// integers or a layer scales them (Rescaling, Normalization), looks them up (Embedding) or encodes them
/// (CategoryEncoding, Discretization) before any weights are applied; otherwise 1/255. `flattened`: without nested
/// models. `input`: index in Architecture::inputs().
[[nodiscard]] double byte_scale_of(const Architecture& flattened, std::size_t input);

/// Throws UsageError if an Input of integers, or a Discretization that gives some, is read by a layer with which Keras
/// then computes in integers, or fails. Embedding, CategoryEncoding, Rescaling and Dense make floats of integers first.
void check_integers(const Architecture& flattened);

/// The first Rescaling that the numbers of an input reach before any weights are applied. Null if there is none.
[[nodiscard]] const LayerInfo* rescaling_of_input(const Architecture& flattened, std::size_t input);

/// The Embedding with the fewest rows that looks up the numbers of an input as they are: directly, or behind layers
/// that only change shapes. Null if there is none.
[[nodiscard]] const LayerInfo* embedding_of_input(const Architecture& flattened, std::size_t input);

}  // namespace lockstep
