// The order in which training reads its examples: a function of (seed, pass) alone, not of the number of workers.
#pragma once

#include "core/range.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The endless stream of example indices that training reads: passes over the data, each in its own random order drawn
/// from (seed, pass). Position p of the stream is entry p % examples of pass p / examples.
class Sampler {
 public:
  /// Without `shuffle` every pass is 0, 1, 2, ... Throws UsageError unless 1 <= examples < 2^32.
  Sampler(std::size_t examples, std::uint64_t seed, bool shuffle);

  /// Fills `indices` with the indices at positions position, position + 1, ... of the stream, across passes.
  void read(std::uint64_t position, std::span<std::uint32_t> indices);

  [[nodiscard]] std::size_t examples() const noexcept { return examples_; }

 private:
  void load_pass(std::uint64_t pass);

  std::size_t examples_;
  std::uint64_t seed_;
  bool shuffle_;
  std::uint64_t pass_ = 0;
  std::vector<std::uint32_t> order_;
};

}  // namespace lockstep
