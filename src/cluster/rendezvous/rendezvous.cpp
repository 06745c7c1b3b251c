// See rendezvous.hpp.
#include "cluster/rendezvous/rendezvous.hpp"

#include "cluster/net/host_id.hpp"
#include "cluster/net/interfaces.hpp"
#include "core/clock.hpp"
#include "core/digest.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr double time_to_flush = 2;  // seconds

PeerInfo make_peer_info(std::size_t member, std::uint64_t local_ranks, const std::string& host) {
  PeerInfo self;
  self.member = member;
  self.incarnation = random_number();
  self.host = host.empty() ? host_id() : host;
  if (self.host.empty()) self.host = fmt::format("process {}", self.incarnation);  // cannot share memory
  self.host_name = host_name();
  self.ranks = local_ranks;
  return self;
}

}  // namespace

Rendezvous::Rendezvous(const ClusterSpec& spec, std::uint64_t local_ranks, const RendezvousOptions& options)
    : timeouts_(options.timeouts),
      credentials_(Credentials::of(spec, options.job, options.token)),
      index_(spec.rank.value_or(0)) {
  if (spec.tasks.empty()) throw InternalError("the cluster has no tasks");
  credentials_.version = options.version;
  const double now = monotonic_seconds();
  PeerInfo self = make_peer_info(index_, local_ranks, options.host);
  const Task& chief = spec.tasks.front();
  member_ =
      std::make_unique<Member>(index_, fmt::format("{} ({})", chief.name(), chief.address.to_string()), timeouts_, now);
  const std::uint16_t port = spec.tasks.at(index_).address.port;
  if (spec.is_chief()) {
    coordinator_ = std::make_unique<Coordinator>(credentials_.tasks, to_hex(self.incarnation), timeouts_, now,
                                                 options.token.is_set() || !spec.spans_hosts());
    std::vector<Address> addresses;
    for (const Task& task : spec.tasks) addresses.push_back(task.address);
    Socket listener = spec.tasks.size() == 1 ? listen_on_loopback(port) : listen_on(port);
    server_ = std::make_unique<RendezvousServer>(std::move(listener), credentials_, std::move(addresses), timeouts_,
                                                 *coordinator_);
    (void)coordinator_->join(self, now);
    member_->connected(now);
    coordinator_->set_record(options.has_finished);
    if (options.has_finished && options.has_finished()) coordinator_->finish_at_once(now);
    if (!options.token.is_set() && spec.tasks.size() > 1) {
      actions_.emplace_back(Log{fmt::format("no job token is set: anyone who reaches port {} can join this job; set "
                                            "LOCKSTEP_JOB_TOKEN to the same secret on all workers",
                                            port),
                                true});
    }
  } else {
    try {
      placeholder_listener_ = listen_on(port);
      self.probe_port = port;
    } catch (const Error& error) {  // not fatal: only probes connect to this port
      actions_.emplace_back(Log{error.what(), true});
    }
    if (options.has_finished && options.has_finished()) member_->had_finished();
    client_ = std::make_unique<RendezvousClient>(chief.address, credentials_, self, timeouts_, *member_);
  }
  pump();
}

void Rendezvous::collect(std::vector<pollfd>& polled) {
  pump();
  polled_from_ = polled.size();
  polled.push_back({accept_again_at_.passed() ? placeholder_listener_.descriptor() : -1, POLLIN, 0});
  polled.push_back({link_prober_.descriptor(), POLLIN, 0});
  if (server_) server_->collect(polled);
  if (client_) client_->collect(polled);
}

void Rendezvous::handle(std::span<const pollfd> polled) {
  if (polled[polled_from_].revents != 0) accept_and_close();
  // Before the messages, which may ask for another round.
  if (std::optional<PeersProbed> result = link_prober_.take_result()) member_->peers_probed(*std::move(result));
  if (server_) server_->handle(polled);
  if (client_) client_->handle(polled);
  const double now = monotonic_seconds();
  member_->tick(now);
  if (coordinator_) coordinator_->tick(now);
  pump();
}

int Rendezvous::timeout_ms() const noexcept {
  return static_cast<int>(std::clamp(timeouts_.heartbeat_interval / 4, 0.001, 0.25) * 1000);
}

void Rendezvous::pump() {
  if (client_) client_->pump();
  if (coordinator_) pump_coordinator();
  probe_links();
}

void Rendezvous::probe_links() {
  const std::optional<ProbePeers> request = member_->take_probe_request();
  if (!request) return;
  try {
    link_prober_.start(*request);
  } catch (const Error& error) {  // no process or pipe to be had
    actions_.emplace_back(Log{fmt::format("cannot probe the links to other workers: {}", error.what()), true});
    member_->peers_probed({request->round, {}});
  }
}

void Rendezvous::pump_coordinator() {
  const double now = monotonic_seconds();
  // The first member that connects shows by which address it reaches this host.
  if (std::string address = own_address(); address != known_address_) {
    coordinator_->set_addresses(index_, addresses_of_host(address));
    known_address_ = std::move(address);
  }
  while (true) {
    const std::vector<Message> messages = member_->take_messages();
    for (const Message& message : messages) coordinator_->receive(index_, message, now);
    const std::vector<CoordinatorAction> actions = coordinator_->take_actions();
    if (messages.empty() && actions.empty()) break;
    for (const CoordinatorAction& action : actions) {
      if (const auto* send = std::get_if<Send>(&action)) {
        SharedBytes bytes;
        for (const std::size_t to : send->to) {
          if (to == index_) {
            member_->receive(send->message, now);
          } else {
            if (!bytes) bytes = encode_shared(to_frame(send->message));
            server_->post(to, bytes);
          }
        }
      } else if (const auto* disconnect = std::get_if<Disconnect>(&action)) {
        if (disconnect->member != index_) {
          server_->disconnect(disconnect->member);
        } else if (!exit_) {  // a member is silent after its exit
          throw InternalError("the coordinator disconnected its own launcher");
        }
      } else {
        all_acknowledged_ = true;
      }
    }
  }
  for (std::string& line : server_->take_log_lines()) actions_.emplace_back(Log{printable_line(line), true});
}

void Rendezvous::accept_and_close() {
  try {
    for (int i = 0; i < 64 && accept_one(placeholder_listener_); ++i) {
    }
  } catch (const InternalError&) {  // out of descriptors: the kernel accepts probes meanwhile
    accept_again_at_ = Deadline::after(1);
  }
}

std::vector<LauncherAction> Rendezvous::take_actions() {
  pump();
  for (LauncherAction& action : member_->take_actions()) {
    if (const auto* exit = std::get_if<Exit>(&action)) {
      exit_ = *exit;
      exit_by_ = monotonic_seconds() + time_to_flush +
                 (coordinator_ && coordinator_->exit_code() ? timeouts_.goodbye_timeout : 0);
    } else {
      actions_.push_back(std::move(action));
    }
  }
  if (exit_) {
    const bool is_flushed = server_ ? server_->is_flushed() : client_->is_flushed();
    const bool needs_acknowledgement = coordinator_ && coordinator_->exit_code();
    if ((is_flushed && (!needs_acknowledgement || all_acknowledged_)) || monotonic_seconds() > exit_by_) {
      actions_.emplace_back(*std::exchange(exit_, {}));
    }
  }
  return std::exchange(actions_, {});
}

JobStatus Rendezvous::status() const {
  const double now = monotonic_seconds();
  JobStatus status;
  status.worker = credentials_.tasks.at(index_);
  member_->add_to(status, now);
  status.peers.front().name = credentials_.tasks.front();  // without its address, as the chief names its peers
  if (coordinator_) {
    status.peers.clear();  // replaced by the coordinator's view
    coordinator_->add_to(status, now);
  }
  return status;
}

std::string Rendezvous::own_address() const { return client_ ? client_->own_address() : server_->own_address(); }

}  // namespace lockstep
