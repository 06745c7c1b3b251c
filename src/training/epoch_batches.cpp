// See epoch_batches.hpp.
#include "training/epoch_batches.hpp"

#include <algorithm>

namespace lockstep {

std::uint64_t EpochBatches::size() const {
  if (whole_batches_ > 0) return static_cast<std::uint64_t>(whole_batches_);
  return (data_->size() + global_batch_ - 1) / global_batch_;
}

Batch EpochBatches::at(int epoch, std::uint64_t step) const {
  const auto pass = static_cast<std::uint64_t>(epoch);
  if (whole_batches_ > 0) return {data_, (pass * size() + step) * global_batch_, global_batch_, shuffle_};
  const std::uint64_t begin = step * global_batch_;
  return {data_, pass * data_->size() + begin, std::min<std::uint64_t>(global_batch_, data_->size() - begin), shuffle_};
}

}  // namespace lockstep
