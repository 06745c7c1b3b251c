// See rendezvous.hpp.
#include "cluster/rendezvous.hpp"

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

#include "cluster/host_identity.hpp"
#include "core/clock.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr double time_to_flush = 2;

Introduction introduce(std::size_t member, std::uint64_t local_ranks, const std::string& host) {
  Introduction self;
  self.member = member;
  self.incarnation = unpredictable_number();
  self.host = host.empty() ? host_identity() : host;
  if (self.host.empty()) self.host = "process " + std::to_string(self.incarnation);  // shares memory with nobody
  self.host_name = host_name();
  self.ranks = local_ranks;
  return self;
}

std::string hexadecimal(std::uint64_t number) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, number >>= 4U) {
    *digit = "0123456789abcdef"[number & 15U];
  }
  return digits;
}

}  // namespace

Rendezvous::Rendezvous(const ClusterSpec& spec, std::uint64_t local_ranks, const RendezvousOptions& options)
    : limits_(options.limits), pass_(Pass::of(spec, options.job, options.token)), number_(spec.rank.value_or(0)) {
  if (spec.tasks.empty()) throw InternalError("a rendezvous of nobody");
  pass_.version = options.version;
  const double now = monotonic_seconds();
  const Introduction self = introduce(number_, local_ranks, options.host);
  const Task& chief = spec.tasks.front();
  member_ = std::make_unique<Member>(number_, chief.name() + " (" + chief.address.to_string() + ")", limits_, now);
  const std::uint16_t port = spec.tasks.at(number_).address.port;
  if (spec.is_chief()) {
    coordinator_ = std::make_unique<Coordinator>(pass_.tasks, hexadecimal(self.incarnation), limits_, now);
    std::vector<Address> addresses;
    for (const Task& task : spec.tasks) addresses.push_back(task.address);
    server_ = std::make_unique<RendezvousServer>(listen_on(port), pass_, std::move(addresses), limits_, *coordinator_);
    (void)coordinator_->admit(self, now);
    member_->connected(now);
    if (!options.token.exists() && spec.tasks.size() > 1) {
      actions_.emplace_back(Log{"there is no job token: whoever reaches port " + std::to_string(port) +
                                    " can join this job; set LOCKSTEP_JOB_TOKEN to the same secret for all workers",
                                true});
    }
  } else {
    client_ = std::make_unique<RendezvousClient>(chief.address, pass_, self, limits_, *member_);
    try {
      doorbell_ = listen_on(port);
    } catch (const UsageError& error) {  // nobody needs to connect here: it only tells less
      actions_.emplace_back(Log{error.what(), true});
    }
  }
  pump();
}

void Rendezvous::collect(std::vector<pollfd>& polled) {
  pump();
  doorbell_at_ = polled.size();
  polled.push_back({doorbell_.descriptor(), POLLIN, 0});
  if (server_) server_->collect(polled);
  if (client_) client_->collect(polled);
}

void Rendezvous::handle(std::span<const pollfd> polled) {
  if (polled[doorbell_at_].revents != 0) answer_doorbell();
  if (server_) server_->handle(polled);
  if (client_) client_->handle(polled);
  const double now = monotonic_seconds();
  member_->tick(now);
  if (coordinator_) coordinator_->tick(now);
  pump();
}

int Rendezvous::timeout_ms() const noexcept {
  return static_cast<int>(std::clamp(limits_.heartbeat / 4, 0.001, 0.25) * 1000);
}

void Rendezvous::pump() {
  const double now = monotonic_seconds();
  if (client_) client_->pump();
  if (!coordinator_) return;
  while (true) {
    const std::vector<Message> said = member_->take_messages();
    for (const Message& message : said) coordinator_->receive(number_, message, now);
    const std::vector<CoordinatorAction> actions = coordinator_->take_actions();
    if (said.empty() && actions.empty()) break;
    for (const CoordinatorAction& action : actions) {
      if (const auto* post = std::get_if<Post>(&action)) {
        SharedBytes bytes;
        for (const std::size_t to : post->to) {
          if (to == number_) {
            member_->receive(post->message, now);
          } else {
            if (!bytes) bytes = share(to_frame(post->message));
            server_->post(to, bytes);
          }
        }
      } else if (const auto* hang_up = std::get_if<HangUp>(&action)) {
        if (hang_up->member != number_) {
          server_->hang_up(hang_up->member);
        } else if (!exit_) {  // after its exit a member is silent
          throw InternalError("the coordinator has lost its own launcher");
        }
      } else {
        all_heard_ = true;
      }
    }
  }
  for (std::string& line : server_->take_lines()) actions_.emplace_back(Log{printable(line), true});
}

void Rendezvous::answer_doorbell() {
  try {
    for (int i = 0; i < 64 && accept_one(doorbell_); ++i) {
    }
  } catch (const InternalError&) {  // no descriptor left: whoever rings hears that in time
    doorbell_.close();
  }
}

std::vector<LauncherAction> Rendezvous::take_actions() {
  pump();
  for (LauncherAction& action : member_->take_actions()) {
    if (const auto* exit = std::get_if<Exit>(&action)) {
      exit_ = *exit;
      exit_by_ = monotonic_seconds() + time_to_flush + (coordinator_ && coordinator_->verdict() ? limits_.farewell : 0);
    } else {
      actions_.push_back(std::move(action));
    }
  }
  if (exit_) {
    const bool is_flushed = server_ ? server_->is_flushed() : client_->is_flushed();
    const bool must_others_hear = coordinator_ && coordinator_->verdict();
    if ((is_flushed && (!must_others_hear || all_heard_)) || monotonic_seconds() > exit_by_) {
      actions_.emplace_back(*std::exchange(exit_, {}));
    }
  }
  return std::exchange(actions_, {});
}

JobStatus Rendezvous::status() const {
  const double now = monotonic_seconds();
  JobStatus status;
  status.worker = pass_.tasks.at(number_);
  member_->add_to(status, now);
  if (coordinator_) {
    status.peers.clear();  // the chief is its own
    coordinator_->add_to(status, now);
  }
  return status;
}

std::string Rendezvous::own_address() const { return client_ ? client_->own_address() : server_->own_address(); }

}  // namespace lockstep
