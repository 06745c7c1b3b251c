// The counter protocol of a host, with threads for ranks and plain memory for the window, so that a race detector sees
// what processes would do.
#include "collective/host_team.hpp"

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

#include "collective/local_communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "core/random.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

constexpr std::size_t elements = 2003;

std::vector<BucketRange> some_buckets() {
  std::vector<BucketRange> buckets;
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

/// The gradient of an element: small whole numbers, so that sums are exact.
float gradient(std::size_t local, int step, std::size_t element) {
  return static_cast<float>((local + 1) * (element % 7 + 1) + static_cast<std::size_t>(step));
}

}  // namespace

TEST_CASE("threads in lockstep see each other's steps whole") {
  const std::size_t ranks = GENERATE(1, 2, 3, 4);
  const int steps = 50;
  const std::vector<BucketRange> buckets = some_buckets();
  const HostLayout layout(ranks, elements, 2 * elements * sizeof(float), buckets.size());
  const AlignedBuffer memory(layout.total_bytes());
  std::latch all_made(static_cast<std::ptrdiff_t>(ranks));
  std::atomic<int> wrong{0};

  const auto run = [&](std::size_t local) {
    HostTeam team(topology_of(ranks, local), layout, memory.data(), buckets, WaitPolicy{});
    const ArenaMemory arenas = team.arenas();
    float* const weights = reinterpret_cast<float*>(arenas.mirrored.data());
    float* const updates = weights + elements;
    all_made.arrive_and_wait();
    RandomStream random(3, RandomPurpose::test, 0);  // the same on all ranks: the order of calls is
    for (int step = 1; step <= steps; ++step) {
      const std::size_t lag = random.below(static_cast<std::uint32_t>(buckets.size()));
      const auto update = [&](std::size_t b) {
        const ReducedShare share = team.reduce(b);
        for (std::size_t i = share.begin; i < share.end; ++i) {
          for (const float* source : share.sources) weights[i] += source[i];
          updates[i] += 1;
        }
        team.publish(b);
      };
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        for (std::size_t i = buckets[b].begin; i < buckets[b].end; ++i) arenas.gradients[i] = gradient(local, step, i);
        team.contribute(b);
        if (b >= lag) update(b - lag);
      }
      for (std::size_t b = buckets.size() - lag; b < buckets.size(); ++b) update(b);
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        team.await(b);
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

TEST_CASE("whoever is missing is named, with the bucket and the step") {
  const std::vector<BucketRange> buckets{{0, 64}, {64, 128}};
  const HostLayout layout(2, 128, 0, buckets.size());
  const AlignedBuffer memory(layout.total_bytes());
  WaitPolicy policy;
  policy.timeout = 0.05;
  Topology topology = topology_of(2, 0);
  topology.host_ranks = {4, 9};  // this host's ranks in the world
  HostTeam present(topology, layout, memory.data(), buckets, policy);
  HostTeam other(topology_of(2, 1), layout, memory.data(), buckets, policy);

  const auto failure_of = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const PeerError& error) {
      return error.what();
    }
    return "none";
  };
  present.contribute(1);
  const std::string late = failure_of([&] { (void)present.reduce(1); });
  REQUIRE(late.find("rank 9 to contribute its gradient of bucket 1 in step 1") != std::string::npos);
  other.contribute(1);
  REQUIRE(present.reduce(1).end == 96);
  present.publish(1);
  REQUIRE(present.take_waiting() == 0);
  const std::string unpublished = failure_of([&] { present.await(1); });
  REQUIRE(unpublished.find("rank 9 to update its share of bucket 1 in step 1") != std::string::npos);
}

TEST_CASE("arenas do not overlap and begin on cache lines") {
  const std::size_t ranks = 3;
  const HostLayout layout(ranks, 1001, 77, 5);
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

TEST_CASE("arenas beyond all memory are refused") {
  const std::size_t huge = std::numeric_limits<std::size_t>::max();
  REQUIRE_THROWS_AS(HostLayout(2, huge / 4, 0, 1), InternalError);
  REQUIRE_THROWS_AS(HostLayout(2, huge / 16, huge / 2, 1), InternalError);
  REQUIRE_THROWS_AS(HostLayout(2, 1, 1, huge / 64), InternalError);
}

TEST_CASE("a rank alone owns whole buckets") {
  LocalCommunicator alone;
  const ArenaMemory arenas = alone.allocate(100, 12, {{0, 100}});
  REQUIRE(arenas.gradients.size() == 100);
  REQUIRE(arenas.mirrored.size() == 12);
  REQUIRE(std::ranges::all_of(arenas.gradients, [](float x) { return x == 0; }));
  alone.contribute(0);
  const ReducedShare share = alone.reduce(0);
  REQUIRE(share.begin == 0);
  REQUIRE(share.end == 100);
  REQUIRE(share.sources.size() == 1);
  REQUIRE(share.sources[0] == arenas.gradients.data());
  alone.publish(0);
  alone.await(0);
  double value = 2.5;
  alone.all_reduce_sum({&value, 1});
  REQUIRE(value == 2.5);
  REQUIRE(alone.all_gather("me") == std::vector<std::string>{"me"});
  REQUIRE_THROWS_AS(alone.all_gather(std::string((1U << 20U) + 1, 'x')), InternalError);
  REQUIRE_THROWS_AS(alone.broadcast({}, 1), InternalError);
  REQUIRE_THROWS_AS(LocalCommunicator().allocate(10, 0, {{0, 11}}), InternalError);
}
