// What a served model reads and computes, in the words of TensorFlow Serving's REST interface.
#pragma once

#include "graph/input_numbers.hpp"

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/architecture.hpp>

#include <string>
#include <vector>

namespace lockstep {

struct TensorSignature {
  std::string name;
  Shape shape;                  ///< of one example
  NumbersOfInput numbers = {};  ///< that an input takes
  friend bool operator==(const TensorSignature&, const TensorSignature&) = default;
};

struct ModelSignature {
  std::vector<TensorSignature> inputs;
  std::vector<TensorSignature> outputs;
  friend bool operator==(const ModelSignature&, const ModelSignature&) = default;
};

[[nodiscard]] ModelSignature signature_of(const Architecture& model);

}  // namespace lockstep
