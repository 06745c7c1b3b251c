// See gradient_reducer.hpp.
#include "collective/gradient_reducer.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/vector_width.hpp"

namespace lockstep {

namespace {

constexpr std::size_t cache_line_elements = 16;

std::size_t rounded_up(std::size_t elements) noexcept {
  return (elements + cache_line_elements - 1) / cache_line_elements * cache_line_elements;
}

void copy_scaled(float* __restrict out, const float* __restrict in, float scale, std::size_t count) noexcept {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * scale;
  });
}

void add_to(float* __restrict out, const float* __restrict in, std::size_t count) noexcept {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) out[i] += in[i];
  });
}

void scale_by(float* out, float scale, std::size_t count) noexcept {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) out[i] *= scale;
  });
}

/// Sums in the order of the sources, block by block so that a block of `out` stays in the cache.
void average_sources(float* out, std::span<const float* const> sources, float scale, std::size_t begin,
                     std::size_t end) {
  constexpr std::size_t block = 2048;
  for (std::size_t at = begin; at < end; at += block) {
    const std::size_t count = std::min(block, end - at);
    if (sources.size() == 1) {
      copy_scaled(out + at, sources[0] + at, scale, count);
      continue;
    }
    std::copy_n(sources[0] + at, count, out + at);
    for (const float* source : sources.subspan(1)) add_to(out + at, source + at, count);
    if (scale != 1.0F) scale_by(out + at, scale, count);
  }
}

}  // namespace

GradientReducer::GradientReducer(std::unique_ptr<Communicator> communicator, std::vector<std::size_t> sizes,
                                 std::size_t bucket_elements)
    : communicator_(std::move(communicator)),
      sizes_(std::move(sizes)),
      offsets_(sizes_.size()),
      bucket_of_(sizes_.size()) {
  std::size_t end = 0;
  Range bucket{0, 0};
  for (std::size_t i = sizes_.size(); i-- > 0;) {
    offsets_[i] = end;
    bucket_of_[i] = buckets_.size();
    end += rounded_up(sizes_[i]);
    bucket.end = end;
    if (bucket.size() < bucket_elements && i > 0) continue;
    buckets_.push_back(bucket);
    bucket = {end, end};
  }
  arenas_ = communicator_->allocate(end, end * sizeof(float), buckets_);
}

std::span<float> GradientReducer::gradient(std::size_t index) const {
  return arenas_.gradients.subspan(offsets_.at(index), sizes_[index]);
}

std::span<const float> GradientReducer::average_of(std::size_t index) const {
  return {reinterpret_cast<const float*>(arenas_.mirrored.data()) + offsets_.at(index), sizes_[index]};
}

void GradientReducer::clear(std::size_t bucket) {
  const Range& range = buckets_.at(bucket);
  std::ranges::fill(arenas_.gradients.subspan(range.begin, range.size()), 0.0F);
}

void GradientReducer::start(std::size_t bucket) { communicator_->mark_ready(bucket); }

void GradientReducer::progress() { communicator_->make_progress(); }

void GradientReducer::average(std::size_t bucket, float scale) {
  const ReducedShard shard = communicator_->wait_reduced(bucket);
  average_sources(reinterpret_cast<float*>(arenas_.mirrored.data()), shard.sources, scale, shard.begin, shard.end);
  communicator_->mark_updated(bucket);
}

void GradientReducer::finish(std::size_t bucket) { communicator_->wait_updated(bucket); }

}  // namespace lockstep
