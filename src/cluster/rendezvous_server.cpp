// See rendezvous_server.hpp.
#include "cluster/rendezvous_server.hpp"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/message.hpp"
#include "cluster/probe.hpp"
#include "core/clock.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t usual_strangers = 256;
constexpr double least_stay = 0.5;  // of a stranger, also where others wait: time enough to prove oneself
constexpr double time_to_read_refusal = 1;
constexpr double probe_timeout = 3;
constexpr double first_probe = 2;
constexpr double between_lines = 10;
constexpr std::size_t most_told = 1000;
constexpr int temporary = static_cast<int>(ExitCode::temporary);
constexpr int usage = static_cast<int>(ExitCode::usage);

/// Descriptors that this process may have, after asking for as many as it may ask for.
std::size_t descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit more = limit;
    more.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1U << 17U);
    if (more.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
  }
  return limit.rlim_cur;
}

std::size_t room_for_strangers(std::size_t members) {
  constexpr std::size_t others = 64;  // log files, trainers' sockets, pipes
  const std::size_t room = descriptors();
  if (room < members + others + 8) {
    throw UsageError("this process may open " + std::to_string(room) + " files, too few for " +
                     std::to_string(members) + " workers; raise its limit (ulimit -n)");
  }
  return std::min(usual_strangers, room - members - others);
}

std::string describe(Reach reach, const std::string& problem) {
  switch (reach) {
    case Reach::answers: return "its host answers on that port, but it has not joined";
    case Reach::refused: return "its host refuses the connection: no launcher runs there yet";
    case Reach::silent: return "its host does not answer";
    case Reach::unreachable: return "its host is unreachable: " + problem;
    case Reach::unknown_name: return "its name does not resolve";
    case Reach::no_name_service: break;
  }
  return "the name service does not answer for it";
}

/// For an errand: one number and one text for each address.
std::string probe_all(const std::vector<Address>& addresses) {
  BodyWriter writer;
  for (const Probe& probe : probe(addresses, probe_timeout)) {
    writer.text(describe(probe.reach, probe.problem));
  }
  return writer.take();
}

}  // namespace

RendezvousServer::RendezvousServer(Socket listener, const Pass& pass, std::vector<Address> addresses,
                                   const Supervision& limits, Coordinator& coordinator)
    : pass_(pass),
      addresses_(std::move(addresses)),
      limits_(limits),
      coordinator_(coordinator),
      listener_(std::move(listener)),
      most_strangers_(room_for_strangers(addresses_.size())),
      members_(addresses_.size()),
      next_probe_(monotonic_seconds() + first_probe) {}

void RendezvousServer::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  // While there is no room the kernel keeps those that come.
  const double now = monotonic_seconds();
  const bool has_room = strangers_.size() < most_strangers_ || now - strangers_.front().since >= least_stay;
  polled.push_back({has_room && now >= no_accept_until_ ? listener_.descriptor() : -1, POLLIN, 0});
  polled.push_back({probe_.descriptor(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) {
    polled.push_back({stranger.connection.socket().descriptor(), stranger.connection.events(), 0});
  }
  polled_members_.clear();
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (!members_[member]) continue;
    polled_members_.push_back(member);
    polled.push_back({members_[member]->socket().descriptor(), members_[member]->events(), 0});
  }
}

void RendezvousServer::handle(std::span<const pollfd> polled) {
  std::span<const pollfd> entries = polled.subspan(polled_from_);
  const bool somebody_waits = entries[0].revents != 0;
  entries = entries.subspan(2);
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const bool has_news = entries[0].revents != 0;
    entries = entries.subspan(1);
    bool stays = true;
    if (has_news) {
      stays = serve(*stranger);
    } else if (stranger->deadline.passed()) {
      if (!stranger->was_refused) ignore(*stranger, "it did not say who it is");
      stays = false;
    }
    stranger = stays ? std::next(stranger) : strangers_.erase(stranger);
  }
  for (const std::size_t member : polled_members_) {
    const bool has_news = entries[0].revents != 0;
    entries = entries.subspan(1);
    if (has_news && members_[member]) serve(member);
  }
  if (somebody_waits) accept_some();
  ask_for_missing();
  if (ignored_ > 0 && monotonic_seconds() >= next_line_) {
    next_line_ = monotonic_seconds() + between_lines;
    lines_.push_back("hung up on " + std::to_string(ignored_) + (ignored_ == 1 ? " stranger" : " strangers") +
                     " at the port of the rendezvous, at last on " + last_ignored_);
    ignored_ = 0;
  }
}

void RendezvousServer::accept_some() {
  for (std::size_t accepted = 0; accepted < usual_strangers; ++accepted) {
    if (strangers_.size() >= most_strangers_) make_room();
    if (strangers_.size() >= most_strangers_) return;
    std::optional<Accepted> peer;
    try {
      peer = accept_one(listener_);
    } catch (const InternalError& error) {  // out of descriptors or memory: members go on, strangers wait
      no_accept_until_ = monotonic_seconds() + 1;
      if (told_.insert(error.what()).second) lines_.emplace_back(error.what());
      return;
    }
    if (!peer) return;
    strangers_.push_back({Connection(std::move(peer->socket), longest_from_stranger), Doorkeeper(pass_),
                          peer->peer.to_string(), monotonic_seconds(), Deadline::after(limits_.stranger), false});
    // Most have said something by now, which saves a poll().
    if (!serve(strangers_.back())) strangers_.pop_back();
  }
}

void RendezvousServer::make_room() {
  const double now = monotonic_seconds();
  if (now - strangers_.front().since < least_stay) return;
  if (!strangers_.front().was_refused) ignore(strangers_.front(), "it did not say who it is, and others waited");
  strangers_.pop_front();
}

bool RendezvousServer::serve(Stranger& stranger) {
  stranger.connection.flush();
  const std::vector<Frame> frames = stranger.connection.receive();
  if (stranger.was_refused) return stranger.connection.is_open();
  try {
    for (const Frame& frame : frames) {
      const Doorkeeper::Answer answer = stranger.doorkeeper.receive(frame);
      if (answer.peer) return admit(stranger, *answer.peer);
      if (!answer.refusal.empty()) {
        turn_away(stranger, answer.frame.value(), answer.refusal);
        return stranger.connection.is_open();
      }
      if (answer.frame) stranger.connection.send(share(*answer.frame));
    }
  } catch (const DataError& error) {
    ignore(stranger, error.what());
    return false;
  }
  if (stranger.connection.is_open()) return true;
  if (stranger.connection.began_well() && stranger.connection.problem().find("version") != std::string::npos) {
    // A Lockstep of another time. The frame is not for the connection, which takes nothing any more.
    const std::string why = "a peer cannot be understood: " + stranger.connection.problem();
    const std::string refusal = encode(Doorkeeper::refuse(usage, why));
    (void)send_some(stranger.connection.socket(), std::as_bytes(std::span(refusal)));
    stranger.connection.end_sending();
    if (told_.size() < most_told && told_.insert(why).second) lines_.push_back("refused " + stranger.from + ": " + why);
  } else {
    ignore(stranger, stranger.connection.problem());
  }
  return false;
}

bool RendezvousServer::admit(Stranger& stranger, const Introduction& who) {
  const std::string objection = coordinator_.admit(who, monotonic_seconds());
  if (!objection.empty()) {
    turn_away(stranger, Doorkeeper::refuse(temporary, objection), objection);
    return stranger.connection.is_open();
  }
  stranger.connection.set_longest(longest_from_member);
  stranger.connection.send(share(stranger.doorkeeper.welcome()));
  if (own_address_.empty() || own_address_.starts_with("127.") || own_address_ == "::1") {
    own_address_ = local_address_of(stranger.connection.socket());
  }
  members_.at(who.member) = std::make_unique<Connection>(std::move(stranger.connection));
  return false;
}

void RendezvousServer::turn_away(Stranger& stranger, const Frame& answer, const std::string& why) {
  stranger.connection.send(share(answer));
  stranger.connection.end_sending();
  stranger.was_refused = true;
  stranger.deadline = Deadline::after(time_to_read_refusal);
  if (told_.size() < most_told && told_.insert(why).second) lines_.push_back("refused " + stranger.from + ": " + why);
}

void RendezvousServer::ignore(const Stranger& stranger, const std::string& why) {
  ++ignored_;
  last_ignored_ = stranger.from + " (" + why + ")";
}

void RendezvousServer::serve(std::size_t member) {
  Connection& connection = *members_[member];
  connection.flush();
  try {
    for (const Frame& frame : connection.receive()) {
      coordinator_.receive(member, to_message(frame), monotonic_seconds());
    }
  } catch (const DataError& error) {
    members_[member].reset();
    coordinator_.lose(member, std::string("it sent what makes no sense: ") + error.what(), monotonic_seconds());
    return;
  }
  if (connection.is_open()) return;
  const std::string why = connection.problem();
  members_[member].reset();
  coordinator_.lose(member, why, monotonic_seconds());
}

void RendezvousServer::post(std::size_t member, const SharedBytes& bytes) {
  if (members_.at(member)) members_[member]->send(bytes);
}

void RendezvousServer::hang_up(std::size_t member) { members_.at(member).reset(); }

bool RendezvousServer::is_flushed() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& it) { return !it || it->is_flushed(); });
}

std::vector<std::string> RendezvousServer::take_lines() { return std::exchange(lines_, {}); }

void RendezvousServer::ask_for_missing() {
  if (const std::optional<std::string> answer = probe_.take()) {
    probe_ = Errand();
    if (answer->empty()) return;
    BodyReader reader(*answer);
    for (const std::size_t member : probed_) coordinator_.explain(member, reader.text());
  }
  const double now = monotonic_seconds();
  if (probe_.runs() || now < next_probe_) return;
  // In time for the next line about them.
  next_probe_ = now + std::max(limits_.report - probe_timeout - first_probe, 0.5);
  probed_ = coordinator_.missing();
  if (probed_.empty()) return;
  std::vector<Address> asked;
  for (const std::size_t member : probed_) asked.push_back(addresses_[member]);
  probe_ = Errand([&asked]() { return probe_all(asked); }, Deadline::after(3 * probe_timeout));
}

}  // namespace lockstep
