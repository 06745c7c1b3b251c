// Which part of a data set's stream each global batch of an epoch is.
#pragma once

#include <lockstep/training/custom_loop.hpp>

#include <cstdint>

namespace lockstep {

class EpochBatches {
 public:
  /// `steps_per_epoch` 0: an epoch is one pass over the data, its last batch perhaps shorter. Else the stream goes on
  /// from epoch to epoch in whole batches.
  EpochBatches(const Dataset& data, std::uint64_t global_batch, int steps_per_epoch, bool shuffle)
      : data_(&data), global_batch_(global_batch), whole_batches_(steps_per_epoch), shuffle_(shuffle) {}

  /// Steps of an epoch.
  [[nodiscard]] std::uint64_t size() const;

  [[nodiscard]] Batch at(int epoch, std::uint64_t step) const;

 private:
  const Dataset* data_;
  std::uint64_t global_batch_;
  int whole_batches_;
  bool shuffle_;
};

}  // namespace lockstep
