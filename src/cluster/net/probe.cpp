// See probe.hpp. Names are resolved first; one poll() loop then drives all connection attempts.
#include "cluster/net/probe.hpp"

#include "cluster/net/endpoint.hpp"
#include "cluster/net/resolve.hpp"
#include "cluster/net/socket.hpp"
#include "core/clock.hpp"
#include "core/deadline.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
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

namespace lockstep {

namespace {

constexpr std::size_t max_at_once = 256;  // well below the usual limit of open files

Reachability reach_of(int error) {
  switch (error) {
    case 0: return Reachability::answers;
    case ECONNREFUSED:
    case ECONNRESET: return Reachability::refused;  // some proxies reset connections to closed ports
    case ETIMEDOUT: return Reachability::no_answer;
    default: return Reachability::unreachable;
  }
}

/// A pending connection attempt.
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

  void add(std::size_t peer, const Endpoint& endpoint) { queued_.push_back({peer, endpoint, {}}); }

  void run() {
    while (true) {
      begin_some();
      if (in_flight_.empty()) return;
      wait();
      finish_some();
    }
  }

 private:
  void begin_some() {
    while (!queued_.empty() && in_flight_.size() < max_at_once) {
      Attempt attempt = std::move(queued_.front());
      queued_.pop_front();
      attempt.began = monotonic_seconds();
      attempt.deadline = Deadline::after(timeout_);
      ConnectAttempt connecting = begin_connect(attempt.endpoint);
      attempt.socket = std::move(connecting.socket);
      if (connecting.error == EINPROGRESS) {
        in_flight_.push_back(std::move(attempt));
      } else {
        record(attempt, connecting.error);
      }
    }
  }

  void wait() {
    polled_.clear();
    Deadline first = Deadline::never();
    for (const Attempt& attempt : in_flight_) {
      polled_.push_back({attempt.socket.descriptor(), POLLOUT, 0});
      first = std::min(first, attempt.deadline);
    }
    if (poll(polled_.data(), polled_.size(), first.poll_timeout()) < 0 && errno != EINTR) {
      throw InternalError(fmt::format("poll failed: {}", std::generic_category().message(errno)));
    }
  }

  void finish_some() {
    std::vector<Attempt> still;
    for (std::size_t i = 0; i < in_flight_.size(); ++i) {
      Attempt& attempt = in_flight_[i];
      if (polled_[i].revents != 0) {
        record(attempt, finish_connect(attempt.socket));
      } else if (attempt.deadline.passed()) {
        record(attempt, ETIMEDOUT);
      } else {
        still.push_back(std::move(attempt));
      }
    }
    in_flight_ = std::move(still);
  }

  void record(const Attempt& attempt, int error) {
    Probe& probe = probes_[attempt.peer];
    const Reachability reach = reach_of(error);
    if (!probe.endpoint.empty() && reach >= probe.reach) return;
    probe = {reach, attempt.endpoint.to_string(), monotonic_seconds() - attempt.began,
             error == 0 ? "" : std::generic_category().message(error)};
  }

  std::span<Probe> probes_;
  double timeout_;
  std::deque<Attempt> queued_;
  std::vector<Attempt> in_flight_;
  std::vector<pollfd> polled_;  ///< one per attempt in `in_flight_`
};

}  // namespace

std::vector<Probe> probe(std::span<const Address> addresses, double timeout) {
  const std::vector<Resolution> names = resolve(addresses, Deadline::after(timeout));
  std::vector<Probe> probes(addresses.size());
  Prober prober(probes, timeout);
  for (std::size_t i = 0; i < names.size(); ++i) {
    probes[i].problem = names[i].problem;
    if (names[i].state == NameState::unknown) probes[i].reach = Reachability::unknown_name;
    for (const Endpoint& endpoint : names[i].endpoints) prober.add(i, endpoint);
  }
  prober.run();
  return probes;
}

}  // namespace lockstep
