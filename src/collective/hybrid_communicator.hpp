// Mirrors on several hosts: shared memory within a host, MPI between hosts. A world on one host has nothing for MPI to
// sum, a world of one rank a host nothing to share: both are this communicator with one of its levels empty.
//
// Share s of a bucket, the part that the rank at place s of every host owns: as soon as all ranks of the host have
// contributed, the owner sums it over them into its own gradient arena, and it travels among the owners of share s on
// all hosts (LinkSums). So every rank with a share carries an equal part of the traffic between hosts.
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

#include "cluster/mpi_support.hpp"
#include "collective/communicator.hpp"
#include "collective/compression.hpp"
#include "collective/host_team.hpp"
#include "collective/link_exchange.hpp"
#include "collective/link_sums.hpp"
#include "collective/patience.hpp"
#include "collective/piecewise_gather.hpp"
#include "collective/topology.hpp"
#include "core/aligned_buffer.hpp"

namespace lockstep {

class HybridCommunicator final : public Communicator {
 public:
  /// Collective over MPI's world, which has one entry a rank in `host_of_rank`. All pass the same. `while_waiting`: see
  /// WaitPolicy.
  explicit HybridCommunicator(const std::vector<int>& host_of_rank, std::function<void(bool)> while_waiting = {},
                              Compression compression = Compression::none);

  [[nodiscard]] int rank() const noexcept override { return topology_.rank; }
  [[nodiscard]] int size() const noexcept override { return topology_.size; }
  [[nodiscard]] int host() const noexcept override { return topology_.host; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool owns_mirror() const noexcept override { return topology_.local == 0; }

  ArenaMemory allocate(std::size_t gradient_elements, std::size_t mirrored_bytes,
                       std::vector<BucketRange> buckets) override;

  void keep_exact(const std::vector<BucketRange>& ranges) override { exact_ = ranges; }
  void contribute(std::size_t bucket) override;
  [[nodiscard]] ReducedShare reduce(std::size_t bucket) override;
  void publish(std::size_t bucket) override;
  void await(std::size_t bucket) override { team_->await(bucket); }
  void advance() override;
  [[nodiscard]] bool is_here(std::size_t bucket) const override;

  void prepare_exchanges(const std::vector<Exchange>& exchanges) override;
  void give(std::size_t exchange) override { exchanges_.at(exchange).give(); }
  void take(std::size_t exchange) override;

  void all_reduce_sum(std::span<double> values) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void start_gather(std::span<const std::span<std::byte>> parts, int root, PartCame came) override;
  void gather_piece() override;
  [[nodiscard]] bool is_gathered() const noexcept override { return !gather_ || gather_->is_done(); }
  void finish_gather() override;
  void drop_gather() noexcept override { gather_.reset(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) override;
  void barrier() override;

  [[nodiscard]] CommunicationTimes take_times() noexcept override;

 private:
  [[nodiscard]] bool shares_memory() const noexcept { return topology_.host_ranks.size() > 1; }
  void agree_on_sizes(std::size_t gradient_elements, std::size_t mirrored_bytes, std::span<const BucketRange> buckets);
  void check_shared_memory(std::size_t needed);
  void make_sums(std::span<const BucketRange> buckets);
  void advance_sums();
  void advance_while_waiting();
  void wait_for(std::size_t bucket);
  /// Who is meant where nobody knows who of the others it is.
  [[nodiscard]] std::string others() const;
  void finish(MPI_Request request, const char* call, const char* what, const std::string& whom);

  Topology topology_;
  WaitPolicy policy_;
  MpiComm world_;
  MpiComm host_;  ///< the ranks of this host
  MpiComm link_;  ///< the owners of my share on all hosts; null where I own none
  AlignedBuffer own_memory_;
  MpiSharedWindow shared_memory_;
  std::optional<HostTeam> team_;  ///< from `allocate` on
  Compression compression_;
  std::vector<BucketRange> exact_;
  std::vector<BucketRange> shares_;  ///< mine, by bucket, if there are other hosts
  std::deque<std::size_t> to_send_;  ///< buckets I have contributed, but perhaps not yet all of my host
  std::optional<LinkSums> sums_;     ///< from `allocate` on, if there are other hosts and I own shares
  std::optional<PiecewiseGather> gather_;
  std::deque<LinkExchange> exchanges_;
  std::vector<double> everybodys_;  ///< for all_reduce_sum
  double reducing_ = 0;
};

}  // namespace lockstep
