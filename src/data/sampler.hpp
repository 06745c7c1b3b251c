// Which examples make a batch, in which order: a function of (seed, pass) alone, never of the number of workers.
#pragma once

#include "core/slice.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The endless stream of example indices that training reads: pass after pass over the data, each pass in an order
/// of its own drawn from (seed, pass). Position p of the stream is place p % examples of pass p / examples.
class ExampleStream {
 public:
  /// `shuffle` false: every pass is 0, 1, 2, ... `examples` is at least 1 and at most 2^32 - 1.
  ExampleStream(std::size_t examples, std::uint64_t seed, bool shuffle);

  /// Fills `indices` with the stream's positions position, position + 1, ... Passes may change within.
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
