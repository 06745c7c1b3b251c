// See sampler.hpp.
#include "data/sampler.hpp"

#include "core/random.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace lockstep {

Sampler::Sampler(std::size_t examples, std::uint64_t seed, bool shuffle)
    : examples_(examples), seed_(seed), shuffle_(shuffle) {
  if (examples == 0 || examples > std::numeric_limits<std::uint32_t>::max()) {
    throw UsageError(
        fmt::format("training needs between 1 and 4294967295 examples, but the dataset has {}; check the "
                    "data directory or the slice that is trained on",
                    examples));
  }
  if (!shuffle_) return;  // positions are indices, so no permutation is stored
  order_.resize(examples_);
  load_pass(0);
}

void Sampler::read(std::uint64_t position, std::span<std::uint32_t> indices) {
  while (!indices.empty()) {
    const std::uint64_t pass = position / examples_;
    const auto offset = static_cast<std::size_t>(position % examples_);
    const std::size_t count = std::min(indices.size(), examples_ - offset);
    if (shuffle_) {
      if (pass != pass_) load_pass(pass);
      std::copy_n(order_.data() + offset, count, indices.data());
    } else {
      std::iota(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count),
                static_cast<std::uint32_t>(offset));
    }
    position += count;
    indices = indices.subspan(count);
  }
}

// Starts from the identity each time, so that a pass's order does not depend on the pass that was read before.
void Sampler::load_pass(std::uint64_t pass) {
  std::iota(order_.begin(), order_.end(), 0U);
  RandomStream random(seed_, RandomPurpose::shuffle, pass);
  for (auto left = static_cast<std::uint32_t>(examples_); left > 1; --left) {
    std::swap(order_[left - 1], order_[random.below(left)]);
  }
  pass_ = pass;
}

}  // namespace lockstep
