// See epoch_batches.hpp.
#include "session/epoch_batches.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

std::size_t useful_batch_size(std::size_t batch_size, const Dataset& data) {
  return std::min(batch_size, std::max(data.size(), max_layout_batch_size));
}

EpochBatches::EpochBatches(const Dataset& data, std::size_t batch_size, int steps_per_epoch, bool shuffle)
    : data_(&data),
      batch_size_(steps_per_epoch == 0 ? useful_batch_size(batch_size, data) : batch_size),
      steps_per_epoch_(steps_per_epoch),
      shuffle_(shuffle) {
  constexpr std::size_t max_repetitions = 8;  // more are a mistake, and may take all memory
  if (steps_per_epoch == 0 || data.size() == 0 || batch_size <= max_repetitions * data.size()) return;
  throw UsageError(
      fmt::format("with {} steps per epoch, each batch of {} would hold each of the {} examples up to {} times; make "
                  "the batch smaller (--global-batch-size), or leave --steps-per-epoch out",
                  steps_per_epoch, batch_size, data.size(), (batch_size + data.size() - 1) / data.size()));
}

std::size_t EpochBatches::smallest() const {
  const std::size_t rest = steps_per_epoch_ > 0 ? 0 : data_->size() % batch_size_;
  return rest > 0 ? rest : batch_size_;
}

std::uint64_t EpochBatches::size() const {
  if (steps_per_epoch_ > 0) return static_cast<std::uint64_t>(steps_per_epoch_);
  return (data_->size() + batch_size_ - 1) / batch_size_;
}

Batch EpochBatches::at(int epoch, std::uint64_t step) const {
  const auto pass = static_cast<std::uint64_t>(epoch);
  Batch batch{.data = data_, .size = batch_size_, .shuffle = shuffle_, .batch_size = batch_size_};
  if (steps_per_epoch_ > 0) {
    batch.position = (pass * size() + step) * batch_size_;
    return batch;
  }
  const std::uint64_t begin = step * batch_size_;
  batch.position = pass * data_->size() + begin;
  batch.size = std::min<std::size_t>(batch_size_, data_->size() - begin);
  return batch;
}

}  // namespace lockstep
