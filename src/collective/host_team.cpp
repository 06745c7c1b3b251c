// See host_team.hpp.
#include "collective/host_team.hpp"

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

#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t stages = 2;

// Ranks are processes: what they share must work without a lock that lives in one of them.
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

/// Sizes that sum up without passing the end of the address space.
class Sum {
 public:
  Sum& add(std::size_t count, std::size_t size, std::size_t alignment) {
    std::size_t bytes = 0;
    // An address has 47 bits; half of the type's range leaves room to round up without looking again.
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, value_, &value_) ||
        value_ > std::numeric_limits<std::size_t>::max() / 2) {
      throw InternalError("the arenas of this model do not fit the memory of any machine");
    }
    value_ = (value_ + alignment - 1) / alignment * alignment;
    return *this;
  }
  [[nodiscard]] std::size_t value() const noexcept { return value_; }

 private:
  std::size_t value_ = 0;
};

}  // namespace

HostLayout::HostLayout(std::size_t ranks, std::size_t gradient_elements, std::size_t mirrored_bytes,
                       std::size_t buckets)
    : gradient_elements_(gradient_elements),
      mirrored_bytes_(mirrored_bytes),
      counter_stride_(Sum().add(buckets, stages * cache_line, cache_line).value()),
      gradient_stride_(Sum().add(gradient_elements, sizeof(float), page).value()),
      gradients_at_(Sum().add(ranks, counter_stride_, page).value()),
      mirrored_at_(Sum().add(1, gradients_at_, page).add(ranks, gradient_stride_, page).value()),
      total_(Sum().add(1, mirrored_at_, page).add(1, mirrored_bytes, page).value()) {}

std::span<std::byte> HostLayout::counters(std::byte* base, std::size_t local) const noexcept {
  return {base + local * counter_stride_, counter_stride_};
}

std::span<float> HostLayout::gradients(std::byte* base, std::size_t local) const noexcept {
  return {reinterpret_cast<float*>(base + gradients_at_ + local * gradient_stride_), gradient_elements_};
}

std::span<std::byte> HostLayout::mirrored(std::byte* base) const noexcept {
  return {base + mirrored_at_, mirrored_bytes_};
}

HostTeam::HostTeam(const Topology& topology, const HostLayout& layout, std::byte* memory,
                   std::vector<BucketRange> buckets, const WaitPolicy& policy, std::function<void()> meanwhile)
    : topology_(topology),
      policy_(policy),
      meanwhile_(std::move(meanwhile)),
      buckets_(std::move(buckets)),
      steps_(buckets_.size(), 0),
      arenas_{layout.gradients(memory, topology.local), layout.mirrored(memory)} {
  if (reinterpret_cast<std::uintptr_t>(memory) % cache_line != 0) {
    throw InternalError("the shared memory of this host does not begin on a cache line");
  }
  for (std::size_t local = 0; local < topology_.host_ranks.size(); ++local) {
    counters_.push_back(layout.counters(memory, local).data());
    gradients_.push_back(layout.gradients(memory, local).data());
  }
  // Written by its own rank, a page comes to lie near it; and a page that the system cannot give is missed now.
  std::ranges::fill(layout.counters(memory, topology_.local), std::byte{0});
  std::ranges::fill(arenas_.gradients, 0.0F);
  if (topology_.local == 0) std::ranges::fill(arenas_.mirrored, std::byte{0});
}

std::uint64_t& HostTeam::counter(std::size_t local, std::size_t bucket, Stage stage) const noexcept {
  std::byte* const line = counters_[local] + (bucket * stages + static_cast<std::size_t>(stage)) * cache_line;
  return *reinterpret_cast<std::uint64_t*>(line);
}

void HostTeam::tell(std::size_t bucket, Stage stage) noexcept {
  std::atomic_ref(counter(topology_.local, bucket, stage)).store(steps_[bucket], std::memory_order_release);
}

void HostTeam::wait_for(std::size_t ranks, std::size_t bucket, Stage stage) {
  for (std::size_t local = 0; local < ranks; ++local) {
    const std::atomic_ref reached(counter(local, bucket, stage));
    if (reached.load(std::memory_order_acquire) < steps_[bucket]) wait_slowly(local, bucket, stage);
  }
}

void HostTeam::wait_slowly(std::size_t local, std::size_t bucket, Stage stage) {
  const std::atomic_ref reached(counter(local, bucket, stage));
  Patience patience(policy_);
  while (reached.load(std::memory_order_acquire) < steps_[bucket]) {
    const bool speaks = patience.pass();
    if (meanwhile_) meanwhile_();
    if (!speaks) continue;
    patience.speak("rank " + std::to_string(topology_.host_ranks[local]) + " to " +
                   (stage == Stage::contributed ? "contribute its gradient of" : "update its share of") + " bucket " +
                   std::to_string(bucket) + " in step " + std::to_string(steps_[bucket]));
  }
  waiting_ += patience.seconds();
}

void HostTeam::contribute(std::size_t bucket) {
  ++steps_.at(bucket);
  tell(bucket, Stage::contributed);
}

ReducedShare HostTeam::reduce(std::size_t bucket) {
  wait_for(topology_.host_ranks.size(), bucket, Stage::contributed);
  if (!topology_.owns_share()) return {buckets_.at(bucket).end, buckets_.at(bucket).end, {}};
  const BucketRange mine = share_of(buckets_.at(bucket), topology_.local, topology_.shares);
  return {mine.begin, mine.end, gradients_};
}

void HostTeam::publish(std::size_t bucket) { tell(bucket, Stage::published); }

void HostTeam::await(std::size_t bucket) { wait_for(topology_.shares, bucket, Stage::published); }

bool HostTeam::is_contributed(std::size_t bucket) const noexcept {
  for (std::size_t local = 0; local < topology_.host_ranks.size(); ++local) {
    const std::atomic_ref reached(counter(local, bucket, Stage::contributed));
    if (reached.load(std::memory_order_acquire) < steps_[bucket]) return false;
  }
  return true;
}

double HostTeam::take_waiting() noexcept { return std::exchange(waiting_, 0.0); }

}  // namespace lockstep
