// Every way to divide the ranks into hosts, against sums in closed form. Cases run on all ranks alike, and every rank
// makes the same calls.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "cluster/world.hpp"
#include "collective/hybrid_communicator.hpp"
#include "collective/make_communicator.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"
#include "support/scoped_variable.hpp"

using namespace lockstep;
using lockstep::testing::ScopedVariable;

namespace {

/// All divisions of the ranks into hosts, numbered in the order of their first ranks.
std::vector<std::vector<int>> all_divisions(int ranks) {
  std::vector<std::vector<int>> divisions{{}};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& division : divisions) {
      const int hosts = division.empty() ? 0 : 1 + *std::ranges::max_element(division);
      for (int host = 0; host <= hosts; ++host) {
        longer.push_back(division);
        longer.back().push_back(host);
      }
    }
    divisions = longer;
  }
  return divisions;
}

std::string text_of(const std::vector<int>& hosts) {
  std::string text;
  for (const int host : hosts) text += std::to_string(host) + ' ';
  return text;
}

/// Buckets of the given sizes in random order, with gaps in between that belong to nobody.
struct Layout {
  std::vector<BucketRange> buckets;
  std::size_t elements = 0;

  explicit Layout(RandomStream& random) {
    std::vector<std::size_t> sizes{0, 1, 15, 16, 17, 1000, 100003, 270001};
    for (std::size_t i = sizes.size(); i > 1; --i) {
      std::swap(sizes[i - 1], sizes[random.below(static_cast<std::uint32_t>(i))]);
    }
    for (const std::size_t size : sizes) {
      elements += random.below(40);
      buckets.push_back({elements, elements + size});
      elements += size;
    }
    elements += random.below(40);
  }
};

/// One optimizer: every rank computes `gradient(i)`, the owners add the sum to the weights and count their updates.
struct Trainer {
  Communicator& communicator;
  const Layout& layout;
  ArenaMemory arenas;
  float* weights;
  float* updates;

  Trainer(Communicator& with, const Layout& of)
      : communicator(with),
        layout(of),
        arenas(with.allocate(of.elements, 2 * of.elements * sizeof(float), of.buckets)),
        weights(reinterpret_cast<float*>(arenas.mirrored.data())),
        updates(weights + of.elements) {}

  void update(std::size_t bucket) {
    const ReducedShare share = communicator.reduce(bucket);
    for (std::size_t i = share.begin; i < share.end; ++i) {
      float sum = 0;
      for (const float* source : share.sources) sum += source[i];
      weights[i] += sum;
      updates[i] += 1;
    }
    communicator.publish(bucket);
  }

  /// Buckets are reduced `lag` buckets after they were contributed.
  template <typename Gradient>
  void step(std::size_t lag, Gradient gradient) {
    const std::size_t count = layout.buckets.size();
    for (std::size_t b = 0; b < count; ++b) {
      for (std::size_t i = layout.buckets[b].begin; i < layout.buckets[b].end; ++i) arenas.gradients[i] = gradient(i);
      communicator.contribute(b);
      if (b >= lag) update(b - lag);
    }
    for (std::size_t b = count - lag; b < count; ++b) update(b);
    for (std::size_t b = 0; b < count; ++b) communicator.await(b);
  }
};

std::uint64_t digest_of(std::span<const float> values) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  for (const float value : values) digest = (digest ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001B3U;
  return digest;
}

bool equal_everywhere(Communicator& communicator, const std::string& text) {
  const std::vector<std::string> texts = communicator.all_gather(text);
  return texts.size() == static_cast<std::size_t>(communicator.size()) &&
         std::ranges::all_of(texts, [&](const std::string& other) { return other == text; });
}

}  // namespace

TEST_CASE("sums in closed form, each element updated once a host and step") {
  const World world;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::uint64_t seed = 0;
  // The numbers are small enough for bfloat16 to hold all of them and their sums.
  const Compression compression = GENERATE(Compression::none, Compression::bfloat16);
  for (const std::vector<int>& hosts : all_divisions(world.size())) {
    CAPTURE(text_of(hosts), static_cast<int>(compression));
    RandomStream random(++seed, RandomPurpose::test, 0);
    const Layout layout(random);
    HybridCommunicator communicator(hosts, {}, compression);
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
      for (const BucketRange& bucket : layout.buckets) {
        for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
          const std::size_t sum = ranks * (ranks + 1) / 2 * (i % 7 + 1) * step + ranks * (step * (step + 1) / 2);
          wrong += trainer.weights[i] != static_cast<float>(sum) || trainer.updates[i] != static_cast<float>(step);
        }
      }
    }
    REQUIRE(wrong == 0);
    // Between the buckets nobody wrote.
    const double updated = std::accumulate(trainer.updates, trainer.updates + layout.elements, 0.0);
    REQUIRE(updated == 6.0 * (1 + 15 + 16 + 17 + 1000 + 100003 + 270001));
  }
}

TEST_CASE("the same bits on all ranks, and in a second run") {
  const World world;
  const Compression compression = GENERATE(Compression::none, Compression::bfloat16);
  for (const std::vector<int>& hosts : all_divisions(world.size())) {
    CAPTURE(text_of(hosts));
    std::array<std::uint64_t, 2> digests{};
    for (std::uint64_t& digest : digests) {
      RandomStream random(7, RandomPurpose::test, 0);
      const Layout layout(random);
      HybridCommunicator communicator(hosts, {}, compression);
      Trainer trainer(communicator, layout);
      RandomStream noise(8, RandomPurpose::test, static_cast<std::uint64_t>(world.rank()));
      for (int step = 0; step < 3; ++step) {
        trainer.step(2, [&](std::size_t) { return noise.uniform() - 0.3F; });
      }
      digest = digest_of({trainer.weights, layout.elements});
      REQUIRE(equal_everywhere(communicator, std::to_string(digest)));
    }
    REQUIRE(digests[0] == digests[1]);
  }
}

TEST_CASE("gradients are rounded between hosts, other sums never") {
  const World world;
  const auto ranks = static_cast<std::size_t>(world.size());
  if (ranks == 1) return;
  std::vector<int> hosts(ranks);
  std::iota(hosts.begin(), hosts.end(), 0);
  HybridCommunicator communicator(hosts, {}, Compression::bfloat16);
  communicator.keep_exact({{32, 48}, {0, 16}});
  const std::size_t elements = 3 * 4096;
  const ArenaMemory arenas = communicator.allocate(elements, 0, {{0, elements}});
  const float fine = 1.0F + 1.0F / 1024;  // needs 11 bits, and bfloat16 has 8
  std::ranges::fill(arenas.gradients, fine);
  communicator.contribute(0);
  const ReducedShare share = communicator.reduce(0);
  REQUIRE(share.begin == 0);
  REQUIRE(share.end == elements);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (const float* source : share.sources) sum += source[i];
    wrong += sum != static_cast<float>(ranks) * (i < 48 ? fine : 1.0F);
  }
  REQUIRE(wrong == 0);
  communicator.publish(0);
}

TEST_CASE("what was contributed comes while others do something else") {
  const World world;
  for (const std::vector<int>& hosts : all_divisions(world.size())) {
    CAPTURE(text_of(hosts));
    HybridCommunicator communicator(hosts);
    const std::size_t elements = std::size_t{3} << 18U;  // several messages
    const ArenaMemory arenas = communicator.allocate(elements, elements, {{0, elements / 2}, {elements / 2, elements}});
    std::ranges::fill(arenas.gradients, 1.0F);
    communicator.contribute(0);
    communicator.contribute(1);
    // Nobody reduces, so nobody waits in MPI.
    const double give_up = monotonic_seconds() + 30;
    while (!(communicator.is_here(0) && communicator.is_here(1)) && monotonic_seconds() < give_up) {
      communicator.advance();
    }
    REQUIRE(communicator.is_here(0));
    REQUIRE(communicator.is_here(1));
    communicator.barrier();
    for (const std::size_t bucket : {0U, 1U}) {
      const ReducedShare share = communicator.reduce(bucket);
      std::size_t wrong = 0;
      for (std::size_t i = share.begin; i < share.end; ++i) {
        float sum = 0;
        for (const float* source : share.sources) sum += source[i];
        wrong += sum != static_cast<float>(world.size());
      }
      REQUIRE(wrong == 0);
      communicator.publish(bucket);
    }
    communicator.await(0);
    communicator.await(1);
  }
}

TEST_CASE("blocks go from each rank to each other, whatever host they are on, and among sums") {
  const World world;
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto me = static_cast<std::size_t>(world.rank());
  // From one rank to another: nothing, a few, several messages; back again something else.
  const auto size_of = [&](std::size_t exchange, std::size_t from, std::size_t to) {
    constexpr std::array<std::size_t, 5> sizes{0, 1, 1000, 131072, 300001};
    return sizes[(3 * exchange + 2 * from + to) % sizes.size()];
  };
  const auto value_of = [](std::size_t step, std::size_t exchange, std::size_t from, std::size_t to, std::size_t i) {
    return static_cast<float>((step * 1000 + exchange * 100 + from * 10 + to + i) % 65536);
  };
  for (const std::vector<int>& hosts : all_divisions(world.size())) {
    CAPTURE(text_of(hosts));
    constexpr std::size_t number = 3;
    std::vector<std::vector<std::vector<float>>> given(number);
    std::vector<std::vector<std::vector<float>>> taken(number);
    std::vector<Exchange> exchanges(number);
    for (std::size_t e = 0; e < number; ++e) {
      for (std::size_t other = 0; other < ranks; ++other) {
        given[e].emplace_back(size_of(e, me, other));
        taken[e].emplace_back(size_of(e, other, me), -1.0F);
      }
      exchanges[e].given.assign(given[e].begin(), given[e].end());
      exchanges[e].taken.assign(taken[e].begin(), taken[e].end());
    }
    RandomStream random(9, RandomPurpose::test, 0);
    const Layout layout(random);
    HybridCommunicator communicator(hosts, {}, Compression::bfloat16);
    Trainer trainer(communicator, layout);
    communicator.prepare_exchanges(exchanges);
    RandomStream pauses(10, RandomPurpose::test, me);
    std::size_t wrong = 0;
    for (std::size_t step = 0; step < 5; ++step) {
      for (std::size_t e = 0; e < number; ++e) {
        for (std::size_t to = 0; to < ranks; ++to) {
          for (std::size_t i = 0; i < given[e][to].size(); ++i) given[e][to][i] = value_of(step, e, me, to, i);
        }
        for (std::uint32_t pause = pauses.below(4); pause > 0; --pause) communicator.advance();
        communicator.give(e);
        if (e == 1) trainer.step(2, [](std::size_t i) { return static_cast<float>(i % 7); });
        communicator.take(e);
        for (std::size_t from = 0; from < ranks; ++from) {
          for (std::size_t i = 0; i < taken[e][from].size(); ++i) {
            wrong += taken[e][from][i] != value_of(step, e, from, me, i);
          }
          std::ranges::fill(given[e][from], -2.0F);  // what was given was sent
        }
      }
    }
    CHECK(wrong == 0);
    communicator.barrier();
  }
}

TEST_CASE("one rank of each host owns its mirror") {
  const World world;
  for (const std::vector<int>& hosts : all_divisions(world.size())) {
    CAPTURE(text_of(hosts));
    HybridCommunicator communicator(hosts);
    REQUIRE(communicator.rank() == world.rank());
    REQUIRE(communicator.size() == world.size());
    const auto first = std::ranges::find(hosts, hosts[static_cast<std::size_t>(world.rank())]) - hosts.begin();
    REQUIRE(communicator.owns_mirror() == (first == world.rank()));
    const ArenaMemory arenas = communicator.allocate(0, sizeof(int), {});
    int& mirrored = *reinterpret_cast<int*>(arenas.mirrored.data());
    if (communicator.owns_mirror()) mirrored = 100 + world.rank();
    communicator.barrier();
    REQUIRE(mirrored == 100 + first);
    communicator.barrier();
  }
}

TEST_CASE("small collectives") {
  const World world;
  const auto communicator = make_communicator(world);
  const int ranks = world.size();
  for (int round = 0; round < 3; ++round) {
    std::array<double, 3> values{1.0, static_cast<double>(world.rank()), 0.1 * (world.rank() + 1) * (round + 1)};
    communicator->all_reduce_sum(values);
    double expected = 0;
    for (int rank = 0; rank < ranks; ++rank) expected += 0.1 * (rank + 1) * (round + 1);  // in rank order
    REQUIRE(values[0] == ranks);
    REQUIRE(values[1] == ranks * (ranks - 1) / 2);
    REQUIRE(values[2] == expected);
  }
  communicator->all_reduce_sum({});

  for (int root = 0; root < ranks; ++root) {
    std::vector<std::byte> bytes(70001, static_cast<std::byte>(world.rank()));
    communicator->broadcast(bytes, root);
    REQUIRE(std::ranges::all_of(bytes, [&](std::byte b) { return b == static_cast<std::byte>(root); }));
  }
  communicator->broadcast({}, 0);
  std::byte nothing{};
  REQUIRE_THROWS_AS(communicator->broadcast({&nothing, 1}, ranks), InternalError);

  const std::string mine(static_cast<std::size_t>(world.rank()) * 1000, static_cast<char>('a' + world.rank()));
  const std::vector<std::string> texts = communicator->all_gather(mine);
  REQUIRE(texts.size() == static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    REQUIRE(texts[static_cast<std::size_t>(rank)] ==
            std::string(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank)));
  }
  REQUIRE(communicator->all_gather(std::string(1U << 20U, 'x')).back().size() == 1U << 20U);
  // Too long on one rank is refused on all of them.
  const bool last = world.rank() == ranks - 1;
  REQUIRE_THROWS_AS(communicator->all_gather(std::string(last ? (1U << 20U) + 1 : 5, 'x')), InternalError);
  communicator->barrier();
}

TEST_CASE("parts are gathered in pieces, beside steps or in a hurry") {
  const World world;
  const int ranks = world.size();
  // Of no byte, less than a piece, several whole ones, many and a rest.
  const std::array<std::size_t, 4> sizes{std::size_t{6} << 16U, 0, 1000, (std::size_t{9} << 16U) + 3};
  const auto value_of = [](int rank, std::size_t i, int round) {
    return static_cast<std::byte>(i * 7 + i / 1000 + static_cast<std::size_t>(rank) * 31 +
                                  static_cast<std::size_t>(round));
  };
  for (const std::vector<int>& hosts : all_divisions(ranks)) {
    CAPTURE(text_of(hosts));
    RandomStream random(1, RandomPurpose::test, 0);
    const Layout layout(random);
    HybridCommunicator communicator(hosts);
    Trainer trainer(communicator, layout);
    for (int round = 0; round < 12; ++round) {
      const int root = round % ranks;
      const auto size_of = [&](int rank) { return sizes[static_cast<std::size_t>(rank + round / 3) % sizes.size()]; };
      std::vector<std::vector<std::byte>> parts(static_cast<std::size_t>(ranks));
      std::vector<std::span<std::byte>> spans;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<std::byte>& part = parts[static_cast<std::size_t>(rank)];
        if (rank == world.rank() || world.rank() == root) part.resize(size_of(rank));
        for (std::size_t i = 0; rank == world.rank() && i < part.size(); ++i) part[i] = value_of(rank, i, round);
        spans.emplace_back(part);
      }
      communicator.start_gather(spans, root, {});
      bool any = false;
      for (int rank = 0; rank < ranks; ++rank) any = any || (rank != root && size_of(rank) > 0);
      if (world.rank() == root) REQUIRE(communicator.is_gathered() == !any);
      const auto all_are_there = [&] {
        std::array<double, 1> missing{communicator.is_gathered() ? 0.0 : 1.0};
        communicator.all_reduce_sum(missing);
        return missing[0] == 0;
      };
      if (round % 3 == 0) {
        for (int step = 0; !all_are_there(); ++step) {
          REQUIRE(step < 10000);
          communicator.gather_piece();
          trainer.step(2, [&](std::size_t i) { return static_cast<float>(i % 5); });
          communicator.advance();
        }
      } else if (round % 3 == 1) {
        communicator.gather_piece();
        trainer.step(0, [&](std::size_t i) { return static_cast<float>(i % 3); });
        communicator.finish_gather();
      } else {
        communicator.gather_piece();
        communicator.advance();
        communicator.drop_gather();
      }
      REQUIRE(communicator.is_gathered());
      bool right = true;
      for (int rank = 0; world.rank() == root && rank < ranks; ++rank) {
        const std::vector<std::byte>& part = parts[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < part.size(); ++i) right = right && part[i] == value_of(rank, i, round);
      }
      REQUIRE(right);
      REQUIRE(equal_everywhere(communicator, std::to_string(round)));
    }
  }
}

TEST_CASE("what does not fit is refused on all ranks") {
  const World world;
  REQUIRE_THROWS_AS(make_communicator(world, Transport::nccl), UsageError);
  if (world.hosts() > 1) {
    REQUIRE_THROWS_AS(make_communicator(world, Transport::shared), UsageError);
  } else {
    REQUIRE(make_communicator(world, Transport::shared) != nullptr);
  }
  if (world.size() == 1) return;

  HybridCommunicator communicator(std::vector<int>(static_cast<std::size_t>(world.size()), 0));
  const bool chief = world.is_chief();
  REQUIRE_THROWS_AS(communicator.allocate(chief ? 100 : 101, 0, {{0, 100}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, chief ? 4 : 8, {{0, 100}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{0, chief ? 99U : 100U}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{0, 101}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{3, 2}}), InternalError);
  try {
    communicator.allocate(std::size_t{1} << 42U, 0, {});  // 16 TiB a rank
    FAIL("no /dev/shm is as large as that");
  } catch (const IoError& error) {
    const std::string text = error.what();
    CAPTURE(text);
    REQUIRE(text.find("/dev/shm") != std::string::npos);
    REQUIRE(text.find("--communication mpi") != std::string::npos);
  }
  REQUIRE(communicator.allocate(100, 0, {{0, 100}}).gradients.size() == 100);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{0, 100}}), InternalError);
}

TEST_CASE("a communicator says what it is") {
  const World world;
  const std::string ranks = std::to_string(world.size());
  if (world.size() == 1) {
    REQUIRE(make_communicator(world)->describe() == "none (1 rank)");
    return;
  }
  REQUIRE(make_communicator(world, Transport::mpi)->describe() == "MPI (" + ranks + " hosts)");
  std::vector<int> hosts(static_cast<std::size_t>(world.size()), 0);
  REQUIRE(HybridCommunicator(hosts).describe() == "shared memory (" + ranks + " ranks)");
  if (world.size() == 2) return;
  hosts.back() = 1;
  REQUIRE(HybridCommunicator(hosts).describe() == "shared memory within 2 hosts, MPI between them");
}

TEST_CASE("a missing rank is named when patience ends") {
  const World world;
  if (world.size() == 1) return;
  const ScopedVariable timeout("LOCKSTEP_COLLECTIVE_TIMEOUT", "2");
  HybridCommunicator communicator(std::vector<int>(static_cast<std::size_t>(world.size()), 0));
  (void)communicator.allocate(64, 0, {{0, 64}});
  const int missing = world.size() - 1;
  if (world.rank() != missing) {
    communicator.contribute(0);
    std::string failure = "none";
    try {
      (void)communicator.reduce(0);
    } catch (const PeerError& error) {
      failure = error.what();
    }
    CAPTURE(failure);
    REQUIRE(failure.find("rank " + std::to_string(missing) + " to contribute") != std::string::npos);
  }
}

TEST_CASE("time spent waiting is told once") {
  const World world;
  if (world.size() == 1) return;
  HybridCommunicator communicator(std::vector<int>(static_cast<std::size_t>(world.size()), 0));
  RandomStream random(9, RandomPurpose::test, 0);
  const Layout layout(random);
  Trainer trainer(communicator, layout);
  (void)communicator.take_times();
  trainer.step(0, [](std::size_t) { return 1.0F; });
  const CommunicationTimes times = communicator.take_times();
  REQUIRE(times.waiting >= 0);
  REQUIRE(times.reducing == 0);  // one host: MPI has no part in a step
  REQUIRE(communicator.take_times().waiting == 0);
}

TEST_CASE("the hosts of LOCKSTEP_TEST_HOSTS are believed, others are refused") {
  const World world;  // of the environment the test was started with
  if (const char* const pattern = std::getenv("LOCKSTEP_TEST_HOSTS")) {
    REQUIRE(world.host_of_rank() == parse_test_hosts(pattern, world.size()));
    return;
  }
  REQUIRE(world.hosts() == 1);
  std::string pattern = "0";
  for (int rank = 1; rank < world.size(); ++rank) pattern.append(",").append(std::to_string(rank));
  {
    const ScopedVariable hosts("LOCKSTEP_TEST_HOSTS", pattern);
    REQUIRE(World().hosts() == world.size());
  }
  pattern += ",0";
  const ScopedVariable hosts("LOCKSTEP_TEST_HOSTS", pattern);
  REQUIRE_THROWS_AS(World(), UsageError);
}
