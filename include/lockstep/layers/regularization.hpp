// Layers that are active only in training.
#pragma once

#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

/// In training, drops an element with probability `rate` and scales the others by 1 / (1 - rate).
struct Dropout : CallableLayer<Dropout> {
  explicit Dropout(double rate_, std::string name_ = {}) : rate(rate_), name(std::move(name_)) {}
  double rate;
  std::string name;
};

}  // namespace lockstep
