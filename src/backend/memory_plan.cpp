// See memory_plan.hpp.
#include "backend/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {

namespace {

constexpr std::size_t cache_line = 64;

struct Placed {
  std::size_t begin = 0;  ///< in bytes
  std::size_t end = 0;
  const BufferUse* use = nullptr;
};

bool are_used_together(const BufferUse& a, const BufferUse& b) { return a.first <= b.last && b.first <= a.last; }

/// The lowest gap of `bytes` between the buffers that are in use together with `use`. `placed`: by their begin.
std::size_t lowest_gap(const std::vector<Placed>& placed, const BufferUse& use, std::size_t bytes) {
  std::size_t begin = 0;
  for (const Placed& other : placed) {
    if (other.begin >= begin + bytes) break;  // so are all behind it
    if (are_used_together(*other.use, use)) begin = std::max(begin, other.end);
  }
  return begin;
}

}  // namespace

MemoryPlan plan_memory(std::span<const BufferUse> uses) {
  MemoryPlan plan;
  plan.offsets.resize(uses.size());
  std::vector<std::size_t> order(uses.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return uses[a].bytes > uses[b].bytes; });
  std::vector<Placed> placed;
  placed.reserve(uses.size());
  for (const std::size_t i : order) {
    const std::size_t bytes = (uses[i].bytes + cache_line - 1) / cache_line * cache_line;
    if (bytes == 0) continue;
    const std::size_t begin = lowest_gap(placed, uses[i], bytes);
    const auto place = std::ranges::upper_bound(placed, begin, {}, &Placed::begin);
    placed.insert(place, {begin, begin + bytes, &uses[i]});
    plan.offsets[i] = begin;
    plan.bytes = std::max(plan.bytes, begin + bytes);
  }
  return plan;
}

}  // namespace lockstep
