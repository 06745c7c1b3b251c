// Measures the all-reduce of keras_mnist's gradients (11.08 MB) with the SGD update of its weights, by each
// communicator and by plain MPI_Allreduce. There is no compute to overlap with, so the full cost is visible.
//
//   scripts/mpirun.sh -np 2 build/release/bin/communicator_bench [ROUNDS]
//
// A round is one step. Rows take turns, so that noise affects all of them equally. The table shows the median and the
// fastest round of the slowest rank. GB/s is the bytes of one rank's gradients divided by the median.
#include "cluster/world/mpi_support.hpp"
#include "cluster/world/world.hpp"
#include "collective/hierarchical_communicator.hpp"
#include "collective/make_communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "core/clock.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace lockstep;

constexpr std::size_t elements = 2770634;
constexpr std::size_t bucket_elements = std::size_t{832} * 128;  // 832 rows of the Dense kernel
constexpr std::size_t slice_elements = std::size_t{1} << 18U;
constexpr float learning_rate = 0.5F;

std::vector<Range> buckets_of_model() {
  std::vector<Range> buckets;
  for (std::size_t at = 0; at < elements; at += bucket_elements) {
    buckets.push_back({at, std::min(elements, at + bucket_elements)});
  }
  return buckets;
}

/// SGD with the sum of the sources as the gradient. One or two sources need no intermediate sum; more are summed in
/// blocks that stay in the first-level cache.
void update(float* __restrict weights, std::span<const float* const> sources, std::size_t begin, std::size_t end) {
  const float* const first = sources[0];
  if (sources.size() == 1) {
    for (std::size_t i = begin; i < end; ++i) weights[i] -= learning_rate * first[i];
    return;
  }
  const float* const second = sources[1];
  if (sources.size() == 2) {
    for (std::size_t i = begin; i < end; ++i) weights[i] -= learning_rate * (first[i] + second[i]);
    return;
  }
  std::array<float, 2048> block;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  for (std::size_t at = begin; at < end; at += block.size()) {
    const std::size_t count = std::min(block.size(), end - at);
    for (std::size_t i = 0; i < count; ++i) block[i] = first[at + i] + second[at + i];
    for (const float* source : sources.subspan(2)) {
      for (std::size_t i = 0; i < count; ++i) block[i] += source[at + i];
    }
    for (std::size_t i = 0; i < count; ++i) weights[at + i] -= learning_rate * block[i];
  }
}

/// One implementation. `step` needs gradients of 1 and may overwrite them.
struct Row {
  std::string name;
  std::span<float> gradients;
  const float* weights;
  std::function<void()> step;
  std::vector<double> seconds = {};
};

/// MPI_Allreduce in slices, then SGD on this rank's private copy of the weights.
class MpiAllReduceRow {
 public:
  explicit MpiAllReduceRow(std::size_t slice)
      : slice_elements_(slice),
        world_(MpiComm::of_world()),
        gradients_(elements * sizeof(float)),
        weights_(elements * sizeof(float)) {}

  Row row(std::string name) {
    return {std::move(name), gradients_.as<float>(), weights_.as<float>().data(), [this] { step(); }};
  }

 private:
  void step() {
    float* const gradients = gradients_.as<float>().data();
    for (std::size_t at = 0; at < elements; at += slice_elements_) {
      const std::size_t count = std::min(slice_elements_, elements - at);
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, gradients + at, static_cast<int>(count), MPI_FLOAT, MPI_SUM, world_.get()),
                "MPI_Allreduce");
      const float* const source = gradients;
      update(weights_.as<float>().data(), {&source, 1}, at, at + count);
    }
  }

  std::size_t slice_elements_;
  MpiComm world_;
  AlignedBuffer gradients_;
  AlignedBuffer weights_;
};

/// The same through a communicator. Reduces each bucket after the next one has been marked ready.
class CommunicatorRow {
 public:
  explicit CommunicatorRow(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)),
        arenas_(communicator_->allocate(elements, elements * sizeof(float), buckets_)) {}

  Row row() {
    return {communicator_->describe(), arenas_.gradients, weights(), [this] { step(); }};
  }

 private:
  [[nodiscard]] float* weights() const { return reinterpret_cast<float*>(arenas_.mirrored.data()); }

  void reduce(std::size_t bucket) {
    const ReducedShard shard = communicator_->wait_reduced(bucket);
    update(weights(), shard.sources, shard.begin, shard.end);
    communicator_->mark_updated(bucket);
  }

  void step() {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      communicator_->mark_ready(b);
      if (b > 0) reduce(b - 1);
    }
    reduce(buckets_.size() - 1);
    for (std::size_t b = 0; b < buckets_.size(); ++b) communicator_->wait_updated(b);
  }

  std::vector<Range> buckets_ = buckets_of_model();
  std::unique_ptr<Communicator> communicator_;
  ArenaMemory arenas_;
};

int rounds_of(int argc, char** argv) {
  if (argc < 2) return 200;
  const auto rounds = parse_number<int>(argv[1]);
  if (argc > 2 || !rounds || *rounds < 1) throw UsageError("usage: communicator_bench [ROUNDS]");
  return *rounds;
}

void run(const World& world, int rounds) {
  const MpiComm everybody = MpiComm::of_world();
  MpiAllReduceRow whole(elements);
  MpiAllReduceRow slices(slice_elements);
  std::vector<std::unique_ptr<CommunicatorRow>> communicators;
  if (world.hosts() == 1)
    communicators.push_back(
        std::make_unique<CommunicatorRow>(make_communicator(world, {.communication = Communication::shared})));
  communicators.push_back(
      std::make_unique<CommunicatorRow>(make_communicator(world, {.communication = Communication::mpi})));
  if (world.size() > 2) {  // two hosts with half of the ranks each
    std::vector<int> hosts(static_cast<std::size_t>(world.size()));
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) hosts[rank] = rank * 2 < hosts.size() ? 0 : 1;
    communicators.push_back(std::make_unique<CommunicatorRow>(std::make_unique<HierarchicalCommunicator>(hosts)));
  }
  std::vector<Row> rows{whole.row("MPI_Allreduce, whole"), slices.row("MPI_Allreduce, 1 MiB slices")};
  for (const auto& each : communicators) rows.push_back(each->row());

  const int warm_up = 3;
  for (int round = 0; round < warm_up + rounds; ++round) {
    for (Row& row : rows) {
      std::ranges::fill(row.gradients, 1.0F);
      check_mpi(MPI_Barrier(everybody.get()), "MPI_Barrier");
      const double start = monotonic_seconds();
      row.step();
      double seconds = monotonic_seconds() - start;
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, everybody.get()), "MPI_Allreduce");
      if (round >= warm_up) row.seconds.push_back(seconds);
      const float expected = -learning_rate * static_cast<float>(world.size() * (round + 1));
      if (std::any_of(row.weights, row.weights + elements, [&](float weight) { return weight != expected; })) {
        throw InternalError(row.name + " computed a wrong sum");
      }
      // No rank may start the next row, which overwrites the mirrored weights, before all ranks have checked them.
      check_mpi(MPI_Barrier(everybody.get()), "MPI_Barrier");
    }
  }
  if (!world.is_chief()) return;
#ifndef NDEBUG
  std::printf("WARNING: debug build; the figures are meaningless\n");
#endif
  const double gradient_bytes = elements * sizeof(float);
  std::printf("%d ranks, %.2f MB, %zu buckets, %d rounds\n", world.size(), gradient_bytes * 1e-6,
              buckets_of_model().size(), rounds);
  std::printf("%-44s %10s %10s %8s\n", "sum and SGD by", "median ms", "fastest ms", "GB/s");
  for (Row& row : rows) {
    std::ranges::sort(row.seconds);
    const double median = row.seconds[row.seconds.size() / 2];
    std::printf("%-44s %10.3f %10.3f %8.1f\n", row.name.c_str(), median * 1e3, row.seconds.front() * 1e3,
                gradient_bytes / median * 1e-9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int rounds = rounds_of(argc, argv);
    const World world;
    if (world.size() < 2) throw UsageError("communicator_bench compares ranks; run it under scripts/mpirun.sh -np 2");
    run(world, rounds);
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    World::end_with_error(static_cast<int>(ExitCode::internal), error.what());
  }
}
