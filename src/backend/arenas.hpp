// The memory of a compiled model's parameters, gradients and optimizer slots.
#pragma once

#include "graph/parameter_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// The buffers of an all-to-all: one block per rank, contiguous, in rank order.
struct AllToAllBuffers {
  std::span<float> send;
  std::span<float> receive;
};

/// `weights` has one element per parameter element, `gradients` the first `elements` of them: the others are frozen.
/// `slots` holds the optimizer's slots one after another, `elements` floats each. `low_precision` has copies of all
/// weights; it is empty unless the precision is mixed_bfloat16.
struct Arenas {
  std::span<float> gradients;
  std::span<float> weights;
  std::span<float> slots;
  std::span<std::uint16_t> low_precision;
  std::size_t elements = 0;
  std::span<const AllToAllBuffers> all_to_alls = {};  ///< one for each of Graph::all_to_alls
  const Arenas* local = nullptr;                      ///< arenas of parameters with ParameterSpec::is_local

  [[nodiscard]] const Arenas& of(const ParameterSpec& parameter) const noexcept {
    return parameter.is_local ? *local : *this;
  }
};

}  // namespace lockstep
