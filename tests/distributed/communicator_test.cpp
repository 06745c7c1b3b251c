// Gradient reduction under every assignment of ranks to hosts, against sums in closed form. All ranks run the same
// cases and make the same calls.
#include "cluster/world/world.hpp"
#include "collective/hierarchical_communicator.hpp"
#include "communicator_trainer.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("all-reduce matches the closed form and updates each element once per host and step") {
  const World world;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::uint64_t seed = 0;
  // bfloat16 represents all of these numbers and their sums exactly.
  const GradientCompression compression = GENERATE(GradientCompression::none, GradientCompression::bfloat16);
  for (const std::vector<int>& hosts : all_host_assignments(world.size())) {
    CAPTURE(text_of(hosts), static_cast<int>(compression));
    RandomStream random(++seed, RandomPurpose::test, 0);
    const Layout layout(random);
    HierarchicalCommunicator communicator(hosts, {.compression = compression});
    Trainer trainer(communicator, layout);
    REQUIRE(std::ranges::all_of(trainer.arenas.gradients, [](float x) { return x == 0; }));
    REQUIRE(std::ranges::all_of(trainer.arenas.mirrored, [](std::byte x) { return x == std::byte{0}; }));
    REQUIRE(reinterpret_cast<std::uintptr_t>(trainer.arenas.gradients.data()) % 64 == 0);
    REQUIRE(reinterpret_cast<std::uintptr_t>(trainer.arenas.mirrored.data()) % 64 == 0);
    communicator.barrier();
    std::size_t wrong = 0;
    for (std::size_t step = 1; step <= 6; ++step) {
      const std::size_t lag = random.below(static_cast<std::uint32_t>(layout.buckets.size() + 1));
      const auto rank = static_cast<std::size_t>(world.rank());
      trainer.step(lag, [&](std::size_t i) { return static_cast<float>((rank + 1) * (i % 7 + 1) + step); });
      for (const Range& bucket : layout.buckets) {
        for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
          const std::size_t sum = ranks * (ranks + 1) / 2 * (i % 7 + 1) * step + ranks * (step * (step + 1) / 2);
          wrong += trainer.weights[i] != static_cast<float>(sum) || trainer.updates[i] != static_cast<float>(step);
        }
      }
    }
    REQUIRE(wrong == 0);
    // Nothing was written between the buckets.
    const double updated = std::accumulate(trainer.updates, trainer.updates + layout.elements, 0.0);
    REQUIRE(updated == 6.0 * (1 + 15 + 16 + 17 + 1000 + 100003 + 270001));
  }
}

TEST_CASE("all ranks and repeated runs produce the same bits") {
  const World world;
  const GradientCompression compression = GENERATE(GradientCompression::none, GradientCompression::bfloat16);
  for (const std::vector<int>& hosts : all_host_assignments(world.size())) {
    CAPTURE(text_of(hosts));
    std::array<std::uint64_t, 2> digests{};
    for (std::uint64_t& digest : digests) {
      RandomStream random(7, RandomPurpose::test, 0);
      const Layout layout(random);
      HierarchicalCommunicator communicator(hosts, {.compression = compression});
      Trainer trainer(communicator, layout);
      RandomStream noise(8, RandomPurpose::test, static_cast<std::uint64_t>(world.rank()));
      for (int step = 0; step < 3; ++step) {
        trainer.step(2, [&](std::size_t) { return noise.uniform() - 0.3F; });
      }
      digest = digest_of({trainer.weights, layout.elements});
      REQUIRE(equal_on_all_ranks(communicator, std::to_string(digest)));
    }
    REQUIRE(digests[0] == digests[1]);
  }
}

TEST_CASE("compression rounds gradients between hosts and nothing else") {
  const World world;
  const auto ranks = static_cast<std::size_t>(world.size());
  if (ranks == 1) return;
  std::vector<int> hosts(ranks);
  std::iota(hosts.begin(), hosts.end(), 0);
  HierarchicalCommunicator communicator(hosts, {.compression = GradientCompression::bfloat16});
  communicator.exclude_from_compression({{32, 48}, {0, 16}});
  const std::size_t elements = 3 * 4096;
  const ArenaMemory arenas = communicator.allocate(elements, 0, {{0, elements}});
  const float fine = 1.0F + 1.0F / 1024;  // needs 11 bits, and bfloat16 has 8
  std::ranges::fill(arenas.gradients, fine);
  communicator.mark_ready(0);
  const ReducedShard shard = communicator.wait_reduced(0);
  REQUIRE(shard.begin == 0);
  REQUIRE(shard.end == elements);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (const float* source : shard.sources) sum += source[i];
    wrong += sum != static_cast<float>(ranks) * (i < 48 ? fine : 1.0F);
  }
  REQUIRE(wrong == 0);
  communicator.mark_updated(0);
}

TEST_CASE("without zeros, gradients have the same sums in fewer bytes") {
  const World world;
  const auto rank = static_cast<std::size_t>(world.rank());
  const GradientCompression compression = GENERATE(GradientCompression::none, GradientCompression::bfloat16);
  const std::size_t each = compression == GradientCompression::none ? sizeof(float) : sizeof(std::uint16_t);
  constexpr std::size_t row = 64;
  constexpr std::size_t rows = 5000;  // more than a message holds
  constexpr std::size_t elements = rows * row + 16;
  for (const std::vector<int>& hosts : all_host_assignments(world.size())) {
    CAPTURE(text_of(hosts), each);
    std::array<std::vector<float>, 2> sums;
    std::uint64_t packed_bytes = 0;
    for (const bool is_packed : {false, true}) {
      HierarchicalCommunicator communicator(hosts, {.compression = compression});
      if (is_packed) communicator.send_without_zeros({{0, rows * row}});
      const ArenaMemory arenas = communicator.allocate(elements, elements * sizeof(float), {{0, elements}});
      float* const weights = reinterpret_cast<float*>(arenas.mirrored.data());
      for (std::size_t step = 0; step < 3; ++step) {
        std::ranges::fill(arenas.gradients, 0.0F);
        // Each rank has another row in twenty, and all have the last.
        for (std::size_t r = (rank + step) % 20; r < rows; r += 20)
          std::fill_n(arenas.gradients.data() + r * row, row, static_cast<float>(r + 3 * rank) / 7 - 100);
        std::fill_n(arenas.gradients.data() + rows * row, 16, static_cast<float>(rank + 1));
        communicator.mark_ready(0);
        const ReducedShard shard = communicator.wait_reduced(0);
        for (std::size_t i = shard.begin; i < shard.end; ++i) {
          for (const float* source : shard.sources) weights[i] += source[i];
        }
        communicator.mark_updated(0);
        communicator.wait_updated(0);
      }
      sums[is_packed ? 1 : 0].assign(weights, weights + elements);
      packed_bytes = communicator.packed_bytes_sent();
      communicator.barrier();
    }
    REQUIRE(sums[0] == sums[1]);
    const bool has_hosts = std::ranges::count(hosts, hosts[0]) != std::ssize(hosts);
    // A host sends the rows of its ranks, and of more than two hosts also sums, to each other host.
    REQUIRE(packed_bytes <= 3 * hosts.size() * hosts.size() * (rows / 20 + 1) * row * each + rows * row / 16);
    if (!has_hosts) REQUIRE(packed_bytes == 0);
  }
}

TEST_CASE("reduction completes while other ranks are busy") {
  const World world;
  for (const std::vector<int>& hosts : all_host_assignments(world.size())) {
    CAPTURE(text_of(hosts));
    HierarchicalCommunicator communicator(hosts);
    const std::size_t elements = std::size_t{3} << 18U;  // several messages
    const ArenaMemory arenas = communicator.allocate(elements, elements, {{0, elements / 2}, {elements / 2, elements}});
    std::ranges::fill(arenas.gradients, 1.0F);
    communicator.mark_ready(0);
    communicator.mark_ready(1);
    // The ranks do not wait for the reduction; it must complete in the background.
    const double give_up = monotonic_seconds() + 30;
    while (!(communicator.is_reduced(0) && communicator.is_reduced(1)) && monotonic_seconds() < give_up) {
      communicator.make_progress();
    }
    REQUIRE(communicator.is_reduced(0));
    REQUIRE(communicator.is_reduced(1));
    communicator.barrier();
    for (const std::size_t bucket : {0U, 1U}) {
      const ReducedShard shard = communicator.wait_reduced(bucket);
      std::size_t wrong = 0;
      for (std::size_t i = shard.begin; i < shard.end; ++i) {
        float sum = 0;
        for (const float* source : shard.sources) sum += source[i];
        wrong += sum != static_cast<float>(world.size());
      }
      REQUIRE(wrong == 0);
      communicator.mark_updated(bucket);
    }
    communicator.wait_updated(0);
    communicator.wait_updated(1);
  }
}

TEST_CASE("all-to-all exchanges blocks within and across hosts, interleaved with reductions") {
  const World world;
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto me = static_cast<std::size_t>(world.rank());
  // Block sizes from none over a few elements to several messages; they differ between the two directions.
  const auto size_of = [&](std::size_t all_to_all, std::size_t from, std::size_t to) {
    constexpr std::array<std::size_t, 5> sizes{0, 1, 1000, 131072, 300001};
    return sizes[(3 * all_to_all + 2 * from + to) % sizes.size()];
  };
  const auto value_of = [](std::size_t step, std::size_t all_to_all, std::size_t from, std::size_t to, std::size_t i) {
    return static_cast<float>((step * 1000 + all_to_all * 100 + from * 10 + to + i) % 65536);
  };
  for (const std::vector<int>& hosts : all_host_assignments(world.size())) {
    CAPTURE(text_of(hosts));
    constexpr std::size_t number = 3;
    std::vector<std::vector<std::vector<float>>> send(number);
    std::vector<std::vector<std::vector<float>>> receive(number);
    std::vector<AllToAll> all_to_alls(number);
    for (std::size_t e = 0; e < number; ++e) {
      for (std::size_t other = 0; other < ranks; ++other) {
        send[e].emplace_back(size_of(e, me, other));
        receive[e].emplace_back(size_of(e, other, me), -1.0F);
      }
      all_to_alls[e].send.assign(send[e].begin(), send[e].end());
      all_to_alls[e].receive.assign(receive[e].begin(), receive[e].end());
    }
    RandomStream random(9, RandomPurpose::test, 0);
    const Layout layout(random);
    HierarchicalCommunicator communicator(hosts, {.compression = GradientCompression::bfloat16});
    Trainer trainer(communicator, layout);
    communicator.prepare_all_to_alls(all_to_alls);
    RandomStream pauses(10, RandomPurpose::test, me);
    std::size_t wrong = 0;
    for (std::size_t step = 0; step < 5; ++step) {
      for (std::size_t e = 0; e < number; ++e) {
        for (std::size_t to = 0; to < ranks; ++to) {
          for (std::size_t i = 0; i < send[e][to].size(); ++i) send[e][to][i] = value_of(step, e, me, to, i);
        }
        for (std::uint32_t pause = pauses.below(4); pause > 0; --pause) communicator.make_progress();
        communicator.start_all_to_all(e);
        if (e == 1) trainer.step(2, [](std::size_t i) { return static_cast<float>(i % 7); });
        communicator.finish_all_to_all(e);
        for (std::size_t from = 0; from < ranks; ++from) {
          for (std::size_t i = 0; i < receive[e][from].size(); ++i) {
            wrong += receive[e][from][i] != value_of(step, e, from, me, i);
          }
          std::ranges::fill(send[e][from], -2.0F);  // sent blocks may be overwritten after finish_all_to_all
        }
      }
    }
    CHECK(wrong == 0);
    communicator.barrier();
  }
}

TEST_CASE("one rank per host owns the shared copy of the weights") {
  const World world;
  for (const std::vector<int>& hosts : all_host_assignments(world.size())) {
    CAPTURE(text_of(hosts));
    HierarchicalCommunicator communicator(hosts);
    REQUIRE(communicator.rank() == world.rank());
    REQUIRE(communicator.size() == world.size());
    const auto first = std::ranges::find(hosts, hosts[static_cast<std::size_t>(world.rank())]) - hosts.begin();
    REQUIRE(communicator.is_mirror_owner() == (first == world.rank()));
    const ArenaMemory arenas = communicator.allocate(0, sizeof(int), {});
    int& mirrored = *reinterpret_cast<int*>(arenas.mirrored.data());
    if (communicator.is_mirror_owner()) mirrored = 100 + world.rank();
    communicator.barrier();
    REQUIRE(mirrored == 100 + first);
    communicator.barrier();
  }
}

TEST_CASE("a timeout names the missing rank") {
  const World world;
  if (world.size() == 1) return;
  HierarchicalCommunicator communicator(std::vector<int>(static_cast<std::size_t>(world.size()), 0), {.timeout = 2});
  (void)communicator.allocate(64, 0, {{0, 64}});
  const int missing = world.size() - 1;
  if (world.rank() != missing) {
    communicator.mark_ready(0);
    std::string failure = "none";
    try {
      (void)communicator.wait_reduced(0);
    } catch (const PeerError& error) {
      failure = error.what();
    }
    CAPTURE(failure);
    REQUIRE(failure.find("rank " + std::to_string(missing) + " to finish its gradient") != std::string::npos);
  }
}

TEST_CASE("wait time is reported once") {
  const World world;
  if (world.size() == 1) return;
  HierarchicalCommunicator communicator(std::vector<int>(static_cast<std::size_t>(world.size()), 0));
  RandomStream random(9, RandomPurpose::test, 0);
  const Layout layout(random);
  Trainer trainer(communicator, layout);
  (void)communicator.take_times();
  trainer.step(0, [](std::size_t) { return 1.0F; });
  const CommunicationTimes times = communicator.take_times();
  REQUIRE(times.shared_memory_wait >= 0);
  REQUIRE(times.mpi_wait == 0);  // on one host a step does not use MPI
  REQUIRE(communicator.take_times().shared_memory_wait == 0);
}
