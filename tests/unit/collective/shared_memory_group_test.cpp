// The counter protocol of a host. Threads stand in for ranks and plain memory for the MPI window, so that
// ThreadSanitizer checks the protocol.
#include "collective/shared_memory_group.hpp"

#include "collective/single_rank_communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

constexpr std::size_t elements = 2003;

std::vector<Range> some_buckets() {
  std::vector<Range> buckets;
  std::size_t at = 0;
  for (const std::size_t size : {0, 1, 15, 16, 17, 1000, 954}) {
    buckets.push_back({at, at + size});
    at += size;
  }
  REQUIRE(at == elements);
  return buckets;
}

Topology topology_of(std::size_t ranks, std::size_t local) {
  return Topology::of(std::vector<int>(ranks, 0), static_cast<int>(local));
}

/// The gradient of an element. Small integers have exact sums.
float gradient(std::size_t local, int step, std::size_t element) {
  return static_cast<float>((local + 1) * (element % 7 + 1) + static_cast<std::size_t>(step));
}

std::vector<Range> shards_of(const Topology& topology, const std::vector<Range>& buckets) {
  std::vector<Range> shards;
  for (const Range& bucket : buckets) shards.push_back(topology.own_shard(bucket));
  return shards;
}

}  // namespace

TEST_CASE("synchronized threads see complete steps of each other") {
  const std::size_t ranks = GENERATE(1, 2, 3, 4);
  const int steps = 50;
  const std::vector<Range> buckets = some_buckets();
  const SharedMemoryLayout layout(ranks, elements, 2 * elements * sizeof(float), buckets.size());
  const AlignedBuffer memory(layout.total_bytes());
  std::latch all_made(static_cast<std::ptrdiff_t>(ranks));
  std::atomic<int> wrong{0};

  const auto run = [&](std::size_t local) {
    const Topology topology = topology_of(ranks, local);
    SharedMemoryGroup group(topology, layout, memory.data(), shards_of(topology, buckets), WaitPolicy{});
    const ArenaMemory arenas = group.arenas();
    float* const weights = reinterpret_cast<float*>(arenas.mirrored.data());
    float* const updates = weights + elements;
    all_made.arrive_and_wait();
    RandomStream random(3, RandomPurpose::test, 0);  // equal on all ranks, because all must make the same calls
    for (int step = 1; step <= steps; ++step) {
      const std::size_t lag = random.below(static_cast<std::uint32_t>(buckets.size()));
      const auto update = [&](std::size_t b) {
        const ReducedShard shard = group.wait_reduced(b);
        for (std::size_t i = shard.begin; i < shard.end; ++i) {
          for (const float* source : shard.sources) weights[i] += source[i];
          updates[i] += 1;
        }
        group.mark_updated(b);
      };
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        for (std::size_t i = buckets[b].begin; i < buckets[b].end; ++i) arenas.gradients[i] = gradient(local, step, i);
        group.mark_ready(b);
        if (b >= lag) update(b - lag);
      }
      for (std::size_t b = buckets.size() - lag; b < buckets.size(); ++b) update(b);
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        group.wait_updated(b);
        for (std::size_t i = buckets[b].begin; i < buckets[b].end; ++i) {
          const std::size_t all = ranks * (ranks + 1) / 2 * (i % 7 + 1) * static_cast<std::size_t>(step) +
                                  ranks * static_cast<std::size_t>(step * (step + 1) / 2);
          if (weights[i] != static_cast<float>(all) || updates[i] != static_cast<float>(step)) ++wrong;
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t local = 0; local < ranks; ++local) threads.emplace_back(run, local);
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
}

TEST_CASE("a timeout names the missing rank, the bucket and the step") {
  const std::vector<Range> buckets{{0, 64}, {64, 128}};
  const SharedMemoryLayout layout(2, 128, 0, buckets.size());
  const AlignedBuffer memory(layout.total_bytes());
  WaitPolicy policy;
  policy.timeout = 0.05;
  Topology topology = topology_of(2, 0);
  topology.host_ranks = {4, 9};  // this host's ranks in the world
  SharedMemoryGroup present(topology, layout, memory.data(), shards_of(topology, buckets), policy);
  SharedMemoryGroup other(topology_of(2, 1), layout, memory.data(), shards_of(topology_of(2, 1), buckets), policy);

  const auto failure_of = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const PeerError& error) {
      return error.what();
    }
    return "none";
  };
  present.mark_ready(1);
  const std::string late = failure_of([&] { (void)present.wait_reduced(1); });
  REQUIRE(late.find("rank 9 to finish its gradient of bucket 1 in step 1") != std::string::npos);
  other.mark_ready(1);
  REQUIRE(present.wait_reduced(1).end == 96);
  present.mark_updated(1);
  REQUIRE(present.take_wait() == 0);
  const std::string unpublished = failure_of([&] { present.wait_updated(1); });
  REQUIRE(unpublished.find("rank 9 to update its shard of bucket 1 in step 1") != std::string::npos);
}

TEST_CASE("arenas do not overlap and begin on cache lines") {
  const std::size_t ranks = 3;
  const SharedMemoryLayout layout(ranks, 1001, 77, 5);
  const AlignedBuffer memory(layout.total_bytes());
  std::vector<std::pair<const std::byte*, const std::byte*>> parts;
  const auto add = [&](auto span) {
    const auto bytes = std::as_bytes(span);
    REQUIRE(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0);
    parts.emplace_back(bytes.data(), bytes.data() + bytes.size());
  };
  for (std::size_t local = 0; local < ranks; ++local) add(layout.counters(memory.data(), local));
  for (std::size_t local = 0; local < ranks; ++local) add(layout.gradients(memory.data(), local));
  add(layout.mirrored(memory.data()));
  const std::byte* at = memory.data();
  for (const auto& [begin, end] : parts) {
    REQUIRE(begin >= at);
    at = end;
  }
  REQUIRE(at <= memory.data() + memory.size());
  REQUIRE(layout.gradients(memory.data(), 2).size() == 1001);
  REQUIRE(layout.mirrored(memory.data()).size() == 77);
}

TEST_CASE("arenas larger than memory are rejected") {
  const std::size_t huge = std::numeric_limits<std::size_t>::max();
  REQUIRE_THROWS_AS(SharedMemoryLayout(2, huge / 4, 0, 1), InternalError);
  REQUIRE_THROWS_AS(SharedMemoryLayout(2, huge / 16, huge / 2, 1), InternalError);
  REQUIRE_THROWS_AS(SharedMemoryLayout(2, 1, 1, huge / 64), InternalError);
}

TEST_CASE("a single rank owns whole buckets") {
  SingleRankCommunicator alone;
  const ArenaMemory arenas = alone.allocate(100, 12, {{0, 100}});
  REQUIRE(arenas.gradients.size() == 100);
  REQUIRE(arenas.mirrored.size() == 12);
  REQUIRE(std::ranges::all_of(arenas.gradients, [](float x) { return x == 0; }));
  alone.mark_ready(0);
  const ReducedShard shard = alone.wait_reduced(0);
  REQUIRE(shard.begin == 0);
  REQUIRE(shard.end == 100);
  REQUIRE(shard.sources.size() == 1);
  REQUIRE(shard.sources[0] == arenas.gradients.data());
  alone.mark_updated(0);
  alone.wait_updated(0);
  double value = 2.5;
  alone.all_reduce_sum({&value, 1});
  REQUIRE(value == 2.5);
  REQUIRE(alone.all_gather("me") == std::vector<std::string>{"me"});
  REQUIRE_THROWS_AS(alone.all_gather(std::string((1U << 20U) + 1, 'x')), InternalError);
  REQUIRE_THROWS_AS(alone.broadcast({}, 1), InternalError);
  REQUIRE_THROWS_AS(SingleRankCommunicator().allocate(10, 0, {{0, 11}}), InternalError);
}
