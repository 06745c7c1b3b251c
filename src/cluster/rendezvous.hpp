// All that a launcher needs to be part of a job: its member, and the way from it to the coordinator, over the network
// or, in the chief's launcher, in memory. One thread, one poll():
//
//   Rendezvous rendezvous(spec, self, options);
//   while (true) {
//     polled.clear();
//     rendezvous.collect(polled);         // and the launcher's own descriptors
//     poll(polled.data(), polled.size(), rendezvous.timeout_ms());
//     rendezvous.handle(polled);          // and the launcher's own; what it learns it tells rendezvous.member()
//     for (LauncherAction& action : rendezvous.take_actions()) ...  // member.hpp says what each one means
//   }
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster_spec.hpp"
#include "cluster/coordinator.hpp"
#include "cluster/handshake.hpp"
#include "cluster/job_status.hpp"
#include "cluster/job_token.hpp"
#include "cluster/member.hpp"
#include "cluster/rendezvous_client.hpp"
#include "cluster/rendezvous_server.hpp"
#include "cluster/socket.hpp"
#include "cluster/supervision.hpp"

namespace lockstep {

struct RendezvousOptions {
  Supervision limits;
  JobToken token;
  std::string job;   ///< a name that differs from job to job, where there is one
  std::string host;  ///< equal for launchers that share memory; empty: host_identity() knows
  std::string version = LOCKSTEP_VERSION;
};

class Rendezvous {
 public:
  /// `spec` has tasks. Throws UsageError where this task's port is taken.
  Rendezvous(const ClusterSpec& spec, std::uint64_t local_ranks, const RendezvousOptions& options);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void collect(std::vector<pollfd>& polled);
  void handle(std::span<const pollfd> polled);
  /// What poll() may wait at most.
  [[nodiscard]] int timeout_ms() const noexcept;

  [[nodiscard]] Member& member() noexcept { return *member_; }

  /// Exit comes last, and not before the others know what they must.
  [[nodiscard]] std::vector<LauncherAction> take_actions();

  /// This process' IP address on the way to the chief, for MPI to choose its interface by; the chief's is where others
  /// have reached it. Empty where it is not known.
  [[nodiscard]] std::string own_address() const;

  /// Without what only the launcher knows: its own trainers.
  [[nodiscard]] JobStatus status() const;

 private:
  void pump();
  void answer_doorbell();

  Supervision limits_;
  Pass pass_;
  std::size_t number_;
  std::unique_ptr<Member> member_;
  // The chief's:
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<RendezvousServer> server_;
  bool all_heard_ = false;
  // The others':
  std::unique_ptr<RendezvousClient> client_;
  Socket doorbell_;  ///< who asks for this task finds that its launcher runs
  std::size_t doorbell_at_ = 0;

  std::vector<LauncherAction> actions_;
  std::optional<Exit> exit_;
  double exit_by_ = 0;
};

}  // namespace lockstep
