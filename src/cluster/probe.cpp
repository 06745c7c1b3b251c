// See probe.hpp. Names are looked up first; then one loop holds all connections that are being made.
#include "cluster/probe.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cluster/deadline.hpp"
#include "cluster/endpoint.hpp"
#include "cluster/resolve.hpp"
#include "cluster/socket.hpp"
#include "core/clock.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t most_at_once = 256;  // well below what a process may usually open

Reach reach_of(int error) {
  switch (error) {
    case 0: return Reach::answers;
    case ECONNREFUSED:
    case ECONNRESET: return Reach::refused;  // the second is what some proxies do for a port without a program
    case ETIMEDOUT: return Reach::silent;
    default: return Reach::unreachable;
  }
}

/// A connection wanted, or being made.
struct Attempt {
  std::size_t peer = 0;
  Endpoint endpoint;
  Socket socket;
  double began = 0;
  Deadline deadline = Deadline::never();
};

class Prober {
 public:
  Prober(std::span<Probe> probes, double timeout) : probes_(probes), timeout_(timeout) {}

  void want(std::size_t peer, const Endpoint& endpoint) { wanted_.push_back({peer, endpoint, {}}); }

  void run() {
    while (true) {
      begin_some();
      if (flying_.empty()) return;
      wait();
      finish_some();
    }
  }

 private:
  void begin_some() {
    while (!wanted_.empty() && flying_.size() < most_at_once) {
      Attempt attempt = std::move(wanted_.front());
      wanted_.pop_front();
      attempt.began = monotonic_seconds();
      attempt.deadline = Deadline::after(timeout_);
      Connecting connecting = begin_connect(attempt.endpoint);
      attempt.socket = std::move(connecting.socket);
      if (connecting.error == EINPROGRESS) {
        flying_.push_back(std::move(attempt));
      } else {
        note(attempt, connecting.error);
      }
    }
  }

  void wait() {
    polled_.clear();
    Deadline first = Deadline::never();
    for (const Attempt& attempt : flying_) {
      polled_.push_back({attempt.socket.descriptor(), POLLOUT, 0});
      first = std::min(first, attempt.deadline);
    }
    if (poll(polled_.data(), polled_.size(), first.poll_timeout()) < 0 && errno != EINTR) {
      throw InternalError("poll failed: " + std::generic_category().message(errno));
    }
  }

  void finish_some() {
    std::vector<Attempt> still;
    for (std::size_t i = 0; i < flying_.size(); ++i) {
      Attempt& attempt = flying_[i];
      if (polled_[i].revents != 0) {
        note(attempt, finish_connect(attempt.socket));
      } else if (attempt.deadline.passed()) {
        note(attempt, ETIMEDOUT);
      } else {
        still.push_back(std::move(attempt));
      }
    }
    flying_ = std::move(still);
  }

  void note(const Attempt& attempt, int error) {
    Probe& probe = probes_[attempt.peer];
    const Reach reach = reach_of(error);
    if (!probe.endpoint.empty() && reach >= probe.reach) return;
    probe = {reach, attempt.endpoint.to_string(), monotonic_seconds() - attempt.began,
             error == 0 ? "" : std::generic_category().message(error)};
  }

  std::span<Probe> probes_;
  double timeout_;
  std::deque<Attempt> wanted_;
  std::vector<Attempt> flying_;
  std::vector<pollfd> polled_;  ///< one for each of `flying_`
};

}  // namespace

std::vector<Probe> probe(std::span<const Address> addresses, double timeout) {
  const std::vector<Resolution> names = resolve(addresses, Deadline::after(timeout));
  std::vector<Probe> probes(addresses.size());
  Prober prober(probes, timeout);
  for (std::size_t i = 0; i < names.size(); ++i) {
    probes[i].problem = names[i].problem;
    if (names[i].state == NameState::unknown) probes[i].reach = Reach::unknown_name;
    for (const Endpoint& endpoint : names[i].endpoints) prober.want(i, endpoint);
  }
  prober.run();
  return probes;
}

}  // namespace lockstep
