// The communicator of worlds on CPUs: shared memory within a host, MPI between hosts. On a single host, or with one
// rank per host, one of the two levels is empty.
//
// Local rank s of every host owns shard s of each bucket. A bucket has as many shards as the smallest host has ranks,
// so the other ranks of a larger host own none. Once all ranks of the host are ready, the owner sums its shard: during
// the update if there is one host, else into its own gradient arena. The owners of shard s on all hosts then all-reduce
// it in place (InterHostAllReduce), and so split the traffic between hosts evenly.
//
// Includes mpi.h: for .cpp files only.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/world/mpi_support.hpp"
#include "collective/background_gather.hpp"
#include "collective/communicator.hpp"
#include "collective/communicator_options.hpp"
#include "collective/inter_host_all_reduce.hpp"
#include "collective/mpi_all_to_all.hpp"
#include "collective/shared_memory_group.hpp"
#include "collective/topology.hpp"
#include "collective/wait_loop.hpp"
#include "core/aligned_buffer.hpp"

namespace lockstep {

class HierarchicalCommunicator final : public Communicator {
 public:
  /// Collective over MPI's world, with equal arguments on all ranks. `host_of_rank` has an entry for every rank.
  explicit HierarchicalCommunicator(const std::vector<int>& host_of_rank, const CommunicatorOptions& options = {});

  [[nodiscard]] int rank() const noexcept override { return topology_.rank; }
  [[nodiscard]] int size() const noexcept override { return topology_.size; }
  [[nodiscard]] int host() const noexcept override { return topology_.host; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::vector<int> mirror_of_rank() const override { return host_of_rank_; }
  [[nodiscard]] bool is_mirror_owner() const noexcept override { return topology_.local_rank == 0; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes, std::vector<Range> buckets) override;

  void exclude_from_compression(const std::vector<Range>& ranges) override { wire_format_.uncompressed = ranges; }
  void send_without_zeros(const std::vector<Range>& ranges) override { wire_format_.packed = ranges; }
  void keep_whole(const std::vector<Range>& ranges) override { whole_ = ranges; }
  void mark_ready(std::size_t bucket) override;
  [[nodiscard]] ReducedShard wait_reduced(std::size_t bucket) override;
  void mark_updated(std::size_t bucket) override;
  void wait_updated(std::size_t bucket) override { group_->wait_updated(bucket); }
  void make_progress() override;

  /// By this rank, of gradients without zeros, in all steps so far.
  [[nodiscard]] std::uint64_t packed_bytes_sent() const noexcept {
    return inter_host_ ? inter_host_->packed_bytes_sent() : 0;
  }

  [[nodiscard]] bool is_reduced(std::size_t bucket) const override;

  void prepare_all_to_alls(const std::vector<AllToAll>& all_to_alls) override;
  void start_all_to_all(std::size_t all_to_all) override { all_to_alls_.at(all_to_all).start(); }
  void finish_all_to_all(std::size_t all_to_all) override;

  void all_reduce_sum(std::span<double> values) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void start_gather(std::span<const std::span<std::byte>> shards, int root, OnGathered on_gathered,
                    std::size_t max_steps) override;
  void schedule_gather_slice() override;
  [[nodiscard]] bool is_gathered() const noexcept override { return !gather_ || gather_->is_done(); }
  void finish_gather() override;
  void cancel_gather() noexcept override { gather_.reset(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) override;
  void barrier() override;

  [[nodiscard]] CommunicationTimes take_times() noexcept override;

 private:
  [[nodiscard]] bool has_shared_memory() const noexcept { return topology_.host_ranks.size() > 1; }
  void check_equal_sizes(std::size_t gradient_elements, std::size_t mirrored_bytes, std::span<const Range> buckets);
  void check_shared_memory(std::size_t needed);
  [[nodiscard]] bool is_whole(const Range& bucket) const;
  void progress_inter_host_all_reduce();
  void make_progress_while_waiting();
  void wait_for_inter_host(std::size_t bucket);
  /// Names the ranks that this one waits for in a collective, as well as it knows them.
  [[nodiscard]] std::string others() const;
  void exchange(std::span<const std::byte> own, std::span<const std::span<std::byte>> parts, const char* what);
  void exchange_equal(std::span<const std::byte> own, std::span<std::byte> all, const char* what);
  void wait_for_request(MPI_Request request, const char* call, const char* what, const std::string& whom);

  std::vector<int> host_of_rank_;
  Topology topology_;
  WaitPolicy policy_;
  MpiComm world_;
  MpiComm host_comm_;        ///< the ranks of this host
  MpiComm inter_host_comm_;  ///< the owners of this rank's shard on all hosts; null if it owns none
  AlignedBuffer local_memory_;
  MpiSharedWindow shared_memory_;
  std::optional<SharedMemoryGroup> group_;  ///< set by `allocate`
  WireFormat wire_format_;
  std::vector<Range> whole_;
  std::vector<Range> shards_;              ///< of this rank, by bucket
  std::deque<std::size_t> ready_buckets_;  ///< ready on this rank, perhaps not yet on its whole host
  std::optional<InterHostAllReduce>
      inter_host_;  ///< set by `allocate` if this rank owns shards and there are other hosts
  std::optional<BackgroundGather> gather_;
  std::deque<MpiAllToAll> all_to_alls_;
  // Kept from call to call: clipping by norms reduces in every step, and steps allocate nothing.
  std::vector<double> gathered_values_;               ///< for all_reduce_sum
  std::vector<std::span<std::byte>> exchange_parts_;  ///< for exchange_equal
  std::vector<MPI_Request> exchange_requests_;        ///< the messages received, then those sent, by rank
  std::vector<int> completed_requests_;               ///< what MPI_Testsome writes
  double mpi_wait_ = 0;
};

}  // namespace lockstep
