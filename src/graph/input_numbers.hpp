// What a model does with the numbers of its inputs: bytes and integers.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

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

/// Whether an Input of this type holds the number exactly. Any number fits float32.
[[nodiscard]] bool fits(double number, InputType type);

/// Whether an Embedding with this many rows looks the number up.
[[nodiscard]] bool is_row(double number, std::int64_t rows);

/// Which numbers an input takes: those that fit the type, and that the Embedding has a row for.
struct NumbersOfInput {
  InputType type = InputType::float32;
  std::string embedding = {};  ///< that looks them up; empty: none
  std::int64_t rows = 0;       ///< of the Embedding
  friend bool operator==(const NumbersOfInput&, const NumbersOfInput&) = default;
};

[[nodiscard]] NumbersOfInput numbers_of_input(const Architecture& flattened, std::size_t input);

}  // namespace lockstep
