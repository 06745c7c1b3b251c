// Connects a launcher's Member to the coordinator: over the network or, in the chief's launcher, in memory. Runs in the
// launcher's single thread around one poll():
//
//   Rendezvous rendezvous(spec, self, options);
//   while (true) {
//     polled.clear();
//     rendezvous.collect(polled);         // then add the launcher's own descriptors
//     poll(polled.data(), polled.size(), rendezvous.timeout_ms());
//     rendezvous.handle(polled);          // then handle the launcher's own and report to rendezvous.member()
//     for (LauncherAction& action : rendezvous.take_actions()) ...  // see member.hpp
//   }
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/config/cluster_spec.hpp"
#include "cluster/config/job_token.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/coordinator.hpp"
#include "cluster/rendezvous/handshake.hpp"
#include "cluster/rendezvous/job_status.hpp"
#include "cluster/rendezvous/link_prober.hpp"
#include "cluster/rendezvous/member.hpp"
#include "cluster/rendezvous/rendezvous_client.hpp"
#include "cluster/rendezvous/rendezvous_server.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"
#include "core/deadline.hpp"

namespace lockstep {

struct RendezvousOptions {
  SupervisionTimeouts timeouts;
  JobToken token;
  std::string job;                     ///< --job-name; peers with another name are refused
  std::string host;                    ///< equal for launchers that can share memory; empty: host_id()
  std::function<bool()> has_finished;  ///< looks up whether a record says that the job is over; empty: there is none
  std::string version = LOCKSTEP_VERSION;
};

class Rendezvous {
 public:
  /// `spec` must have tasks. Throws PeerError if the port of the chief's task is taken.
  Rendezvous(const ClusterSpec& spec, std::uint64_t local_ranks, const RendezvousOptions& options);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void collect(std::vector<pollfd>& polled);
  void handle(std::span<const pollfd> polled);
  /// The longest time poll() may wait.
  [[nodiscard]] int timeout_ms() const noexcept;

  [[nodiscard]] Member& member() noexcept { return *member_; }

  /// Exit comes last, after the messages that the other members need have been sent.
  [[nodiscard]] std::vector<LauncherAction> take_actions();

  /// The local IP address of the connection to the chief; for the chief, the address at which others reached it. MPI
  /// uses the network interface with this address. Empty if unknown.
  [[nodiscard]] std::string own_address() const;

  /// The status of the job, without this launcher's own trainers.
  [[nodiscard]] JobStatus status() const;

 private:
  void pump();
  void pump_coordinator();
  void probe_links();
  void accept_and_close();

  SupervisionTimeouts timeouts_;
  Credentials credentials_;
  std::size_t index_;
  std::unique_ptr<Member> member_;
  // In the chief's launcher:
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<RendezvousServer> server_;
  bool all_acknowledged_ = false;
  std::string known_address_;  ///< the last own_address() that the coordinator was told of
  // In the other launchers:
  std::unique_ptr<RendezvousClient> client_;
  Socket placeholder_listener_;  ///< accepts probes of this task's port, to show that its launcher can be reached
  Deadline accept_again_at_ = Deadline::after(0);

  LinkProber link_prober_;
  std::size_t polled_from_ = 0;

  std::vector<LauncherAction> actions_;
  std::optional<Exit> exit_;
  double exit_by_ = 0;
};

}  // namespace lockstep
