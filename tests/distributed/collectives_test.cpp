// The collectives beside gradient reduction: scalar all-reduce, broadcast, gathers, and the errors of communicators.
// All ranks run the same cases and make the same calls.
#include "cluster/world/world.hpp"
#include "collective/hierarchical_communicator.hpp"
#include "collective/make_communicator.hpp"
#include "communicator_trainer.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"
#include "support/scoped_variable.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("scalar all-reduce, broadcast and all-gather return the same exact result on all ranks") {
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
  // A text that is too long on one rank throws on all ranks.
  const bool last = world.rank() == ranks - 1;
  REQUIRE_THROWS_AS(communicator->all_gather(std::string(last ? (1U << 20U) + 1 : 5, 'x')), InternalError);
  communicator->barrier();
}

TEST_CASE("background gather completes during steps or at once") {
  const World world;
  const int ranks = world.size();
  // Sizes: none, less than one chunk, several whole chunks, many chunks and a remainder.
  const std::array<std::size_t, 4> sizes{std::size_t{6} << 16U, 0, 1000, (std::size_t{9} << 16U) + 3};
  const auto value_of = [](int rank, std::size_t i, int round) {
    return static_cast<std::byte>(i * 7 + i / 1000 + static_cast<std::size_t>(rank) * 31 +
                                  static_cast<std::size_t>(round));
  };
  for (const std::vector<int>& hosts : all_host_assignments(ranks)) {
    CAPTURE(text_of(hosts));
    RandomStream random(1, RandomPurpose::test, 0);
    const Layout layout(random);
    HierarchicalCommunicator communicator(hosts);
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
      const std::size_t max_steps = round < 6 ? 0 : 2;
      communicator.start_gather(spans, root, {}, max_steps);
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
          REQUIRE(step < 100000);
          if (max_steps == 0 || step <= static_cast<int>(max_steps)) communicator.schedule_gather_slice();
          trainer.step(2, [&](std::size_t i) { return static_cast<float>(i % 5); });
          communicator.make_progress();
        }
      } else if (round % 3 == 1) {
        communicator.schedule_gather_slice();
        trainer.step(0, [&](std::size_t i) { return static_cast<float>(i % 3); });
        communicator.finish_gather();
      } else {
        communicator.schedule_gather_slice();
        communicator.make_progress();
        communicator.cancel_gather();
      }
      REQUIRE(communicator.is_gathered());
      bool right = true;
      for (int rank = 0; world.rank() == root && rank < ranks; ++rank) {
        const std::vector<std::byte>& part = parts[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < part.size(); ++i) right = right && part[i] == value_of(rank, i, round);
      }
      REQUIRE(right);
      REQUIRE(equal_on_all_ranks(communicator, std::to_string(round)));
    }
  }
}

TEST_CASE("mismatched arguments throw on all ranks") {
  const World world;
  REQUIRE_THROWS_AS(make_communicator(world, {.communication = Communication::nccl}), UsageError);
  if (world.hosts() > 1) {
    REQUIRE_THROWS_AS(make_communicator(world, {.communication = Communication::shared}), UsageError);
  } else {
    REQUIRE(make_communicator(world, {.communication = Communication::shared}) != nullptr);
  }
  if (world.size() == 1) return;

  HierarchicalCommunicator communicator(std::vector<int>(static_cast<std::size_t>(world.size()), 0));
  const bool chief = world.is_chief();
  REQUIRE_THROWS_AS(communicator.allocate(chief ? 100 : 101, 0, {{0, 100}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, chief ? 4 : 8, {{0, 100}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{0, chief ? 99U : 100U}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{0, 101}}), InternalError);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{3, 2}}), InternalError);
  try {
    communicator.allocate(std::size_t{1} << 42U, 0, {});  // 16 TiB per rank
    FAIL("/dev/shm cannot hold 16 TiB per rank");
  } catch (const IoError& error) {
    const std::string text = error.what();
    CAPTURE(text);
    REQUIRE(text.find("/dev/shm") != std::string::npos);
    REQUIRE(text.find("--communication mpi") != std::string::npos);
  }
  REQUIRE(communicator.allocate(100, 0, {{0, 100}}).gradients.size() == 100);
  REQUIRE_THROWS_AS(communicator.allocate(100, 0, {{0, 100}}), InternalError);
}

TEST_CASE("a communicator describes itself") {
  const World world;
  const std::string ranks = std::to_string(world.size());
  if (world.size() == 1) {
    REQUIRE(make_communicator(world)->describe() == "none (1 rank)");
    return;
  }
  REQUIRE(make_communicator(world, {.communication = Communication::mpi})->describe() == "MPI (" + ranks + " hosts)");
  std::vector<int> hosts(static_cast<std::size_t>(world.size()), 0);
  REQUIRE(HierarchicalCommunicator(hosts).describe() == "shared memory (" + ranks + " ranks)");
  if (world.size() == 2) return;
  hosts.back() = 1;
  REQUIRE(HierarchicalCommunicator(hosts).describe() == "shared memory within 2 hosts, MPI between them");
}

TEST_CASE("LOCKSTEP_SIMULATED_HOSTS overrides the hosts and invalid values throw") {
  const World world;  // uses the environment of the test
  if (const char* const pattern = std::getenv("LOCKSTEP_SIMULATED_HOSTS")) {
    REQUIRE(world.host_of_rank() == parse_simulated_hosts(pattern, world.size()));
    return;
  }
  REQUIRE(world.hosts() == 1);
  std::string pattern = "0";
  for (int rank = 1; rank < world.size(); ++rank) pattern.append(",").append(std::to_string(rank));
  {
    const ScopedVariable hosts("LOCKSTEP_SIMULATED_HOSTS", pattern);
    REQUIRE(World().hosts() == world.size());
  }
  pattern += ",0";
  const ScopedVariable hosts("LOCKSTEP_SIMULATED_HOSTS", pattern);
  REQUIRE_THROWS_AS(World(), UsageError);
}
