// See shared_memory_group.hpp.
#include "collective/shared_memory_group.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t stages = 2;

// Ranks are processes, so shared counters must not rely on a lock in one process's memory.
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

/// A size in bytes, checked for overflow.
class CheckedSize {
 public:
  CheckedSize& add(std::size_t count, std::size_t size, std::size_t alignment) {
    std::size_t bytes = 0;
    // Half of the type's range exceeds any address space, so rounding up cannot overflow.
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, value_, &value_) ||
        value_ > std::numeric_limits<std::size_t>::max() / 2) {
      throw InternalError("the arenas of this model exceed the memory of any machine");
    }
    value_ = (value_ + alignment - 1) / alignment * alignment;
    return *this;
  }
  [[nodiscard]] std::size_t value() const noexcept { return value_; }

 private:
  std::size_t value_ = 0;
};

}  // namespace

SharedMemoryLayout::SharedMemoryLayout(std::size_t ranks, std::size_t gradient_elements, std::size_t mirrored_bytes,
                                       std::size_t buckets)
    : gradient_elements_(gradient_elements),
      mirrored_bytes_(mirrored_bytes),
      counter_stride_(CheckedSize().add(buckets, stages * cache_line, cache_line).value()),
      gradient_stride_(CheckedSize().add(gradient_elements, sizeof(float), page).value()),
      gradients_offset_(CheckedSize().add(ranks, counter_stride_, page).value()),
      mirrored_offset_(CheckedSize().add(1, gradients_offset_, page).add(ranks, gradient_stride_, page).value()),
      total_bytes_(CheckedSize().add(1, mirrored_offset_, page).add(1, mirrored_bytes, page).value()) {}

std::span<std::byte> SharedMemoryLayout::counters(std::byte* base, std::size_t local_rank) const noexcept {
  return {base + local_rank * counter_stride_, counter_stride_};
}

std::span<float> SharedMemoryLayout::gradients(std::byte* base, std::size_t local_rank) const noexcept {
  return {reinterpret_cast<float*>(base + gradients_offset_ + local_rank * gradient_stride_), gradient_elements_};
}

std::span<std::byte> SharedMemoryLayout::mirrored(std::byte* base) const noexcept {
  return {base + mirrored_offset_, mirrored_bytes_};
}

SharedMemoryGroup::SharedMemoryGroup(const Topology& topology, const SharedMemoryLayout& layout, std::byte* memory,
                                     std::vector<Range> shards, const WaitPolicy& policy, std::function<void()> on_wait)
    : topology_(topology),
      policy_(policy),
      on_wait_(std::move(on_wait)),
      shards_(std::move(shards)),
      steps_(shards_.size(), 0),
      arenas_{layout.gradients(memory, topology.local_rank), layout.mirrored(memory)} {
  if (reinterpret_cast<std::uintptr_t>(memory) % cache_line != 0) {
    throw InternalError("the shared memory of this host does not begin on a cache line");
  }
  for (std::size_t local_rank = 0; local_rank < topology_.host_ranks.size(); ++local_rank) {
    counters_.push_back(layout.counters(memory, local_rank).data());
    gradients_.push_back(layout.gradients(memory, local_rank).data());
  }
  // First touch by its own rank places a page near that rank, and shows now whether the system can provide it.
  std::ranges::fill(layout.counters(memory, topology_.local_rank), std::byte{0});
  std::ranges::fill(arenas_.gradients, 0.0F);
  if (topology_.local_rank == 0) std::ranges::fill(arenas_.mirrored, std::byte{0});
}

std::uint64_t& SharedMemoryGroup::counter(std::size_t local_rank, std::size_t bucket, Stage stage) const noexcept {
  std::byte* const line = counters_[local_rank] + (bucket * stages + static_cast<std::size_t>(stage)) * cache_line;
  return *reinterpret_cast<std::uint64_t*>(line);
}

void SharedMemoryGroup::signal(std::size_t bucket, Stage stage) noexcept {
  std::atomic_ref(counter(topology_.local_rank, bucket, stage)).store(steps_[bucket], std::memory_order_release);
}

void SharedMemoryGroup::wait_for_ranks(std::size_t ranks, std::size_t bucket, Stage stage) {
  for (std::size_t local_rank = 0; local_rank < ranks; ++local_rank) {
    const std::atomic_ref reached(counter(local_rank, bucket, stage));
    if (reached.load(std::memory_order_acquire) < steps_[bucket]) wait_for_rank(local_rank, bucket, stage);
  }
}

void SharedMemoryGroup::wait_for_rank(std::size_t local_rank, std::size_t bucket, Stage stage) {
  const std::atomic_ref reached(counter(local_rank, bucket, stage));
  WaitLoop wait(policy_);
  while (reached.load(std::memory_order_acquire) < steps_[bucket]) {
    const bool is_report_due = wait.pause();
    if (on_wait_) on_wait_();
    if (!is_report_due) continue;
    wait.report(fmt::format("rank {} to {} bucket {} in step {}", topology_.host_ranks[local_rank],
                            stage == Stage::ready ? "finish its gradient of" : "update its shard of", bucket,
                            steps_[bucket]));
  }
  waited_ += wait.seconds();
}

void SharedMemoryGroup::mark_ready(std::size_t bucket) {
  ++steps_.at(bucket);
  signal(bucket, Stage::ready);
}

ReducedShard SharedMemoryGroup::wait_reduced(std::size_t bucket) {
  wait_for_ranks(topology_.host_ranks.size(), bucket, Stage::ready);
  const Range mine = shards_.at(bucket);
  return {mine.begin, mine.end, gradients_};
}

void SharedMemoryGroup::mark_updated(std::size_t bucket) { signal(bucket, Stage::updated); }

void SharedMemoryGroup::wait_updated(std::size_t bucket) { wait_for_ranks(topology_.shards, bucket, Stage::updated); }

bool SharedMemoryGroup::is_ready(std::size_t bucket) const noexcept {
  for (std::size_t local_rank = 0; local_rank < topology_.host_ranks.size(); ++local_rank) {
    const std::atomic_ref reached(counter(local_rank, bucket, Stage::ready));
    if (reached.load(std::memory_order_acquire) < steps_[bucket]) return false;
  }
  return true;
}

double SharedMemoryGroup::take_wait() noexcept { return std::exchange(waited_, 0.0); }

}  // namespace lockstep
