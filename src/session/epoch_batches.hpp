// Maps each step of an epoch to its global batch: a slice of the dataset's stream of examples.
#pragma once

#include <lockstep/training/custom_loop.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// A model is laid out before it sees data, for batches of at most this many examples.
inline constexpr std::size_t max_layout_batch_size = std::size_t{1} << 16U;

/// The batch size to compile for: batches larger than the data cost memory that no example uses.
[[nodiscard]] std::size_t useful_batch_size(std::size_t batch_size, const Dataset& data);

class EpochBatches {
 public:
  /// `steps_per_epoch` 0: an epoch is one pass over the data, and its last batch may be shorter. Otherwise all batches
  /// are full, and an epoch begins in the stream where the previous one ended. Throws UsageError if a full batch would
  /// hold an example more than eight times.
  EpochBatches(const Dataset& data, std::size_t batch_size, int steps_per_epoch, bool shuffle);

  [[nodiscard]] std::size_t batch_size() const noexcept { return batch_size_; }

  /// Examples in the smallest batch.
  [[nodiscard]] std::size_t smallest() const;

  [[nodiscard]] std::uint64_t size() const;

  [[nodiscard]] Batch at(int epoch, std::uint64_t step) const;

 private:
  const Dataset* data_;
  std::size_t batch_size_;
  int steps_per_epoch_;
  bool shuffle_;
};

}  // namespace lockstep
