// The communicator of a world of one rank: no waits, no sums, no MPI.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "collective/communicator.hpp"
#include "core/aligned_buffer.hpp"

namespace lockstep {

class SingleRankCommunicator final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  [[nodiscard]] std::string describe() const override { return "none (1 rank)"; }
  [[nodiscard]] std::vector<int> mirror_of_rank() const override { return {0}; }
  [[nodiscard]] bool is_mirror_owner() const noexcept override { return true; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;

  void mark_ready(std::size_t) override {}
  [[nodiscard]] ReducedShard wait_reduced(std::size_t bucket) override;
  void mark_updated(std::size_t) override {}
  void wait_updated(std::size_t) override {}

  void all_reduce_sum(std::span<double>) override {}
  void broadcast(std::span<std::byte>, int root) override;
  void start_gather(std::span<const std::span<std::byte>> shards, int root, OnGathered on_gathered,
                    std::size_t max_steps) override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) override;
  void barrier() override {}

  [[nodiscard]] CommunicationTimes take_times() noexcept override { return {}; }

 private:
  AlignedBuffer gradients_;
  AlignedBuffer mirrored_;
  const float* source_ = nullptr;
  std::vector<Range> buckets_;
};

}  // namespace lockstep
