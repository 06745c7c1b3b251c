// Layers that merge several tensors of equal shapes into one, element by element.
#pragma once

#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

/// The sum of its inputs.
struct Add : MergeLayer<Add> {
  explicit Add(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The product of its inputs.
struct Multiply : MergeLayer<Multiply> {
  explicit Multiply(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The mean of its inputs.
struct Average : MergeLayer<Average> {
  explicit Average(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The first input minus the second.
struct Subtract : MergeLayer<Subtract> {
  explicit Subtract(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The largest of its inputs.
struct Maximum : MergeLayer<Maximum> {
  explicit Maximum(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The smallest of its inputs.
struct Minimum : MergeLayer<Minimum> {
  explicit Minimum(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

}  // namespace lockstep
