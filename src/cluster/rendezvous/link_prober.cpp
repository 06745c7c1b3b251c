// See link_prober.hpp.
#include "cluster/rendezvous/link_prober.hpp"

#include "cluster/net/address.hpp"
#include "cluster/net/format_seconds.hpp"
#include "cluster/net/frame.hpp"
#include "cluster/net/interfaces.hpp"
#include "cluster/net/probe.hpp"
#include "core/deadline.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

namespace {

constexpr double probe_timeout_s = 3;  // a lost SYN is sent again after 1 s

/// Why the link is cut; empty if it is not, or if the probe shows nothing.
std::string describe(const Probe& probe) {
  switch (probe.reach) {
    case Reachability::refused: return "connection refused";
    case Reachability::no_answer: return "no answer within " + format_seconds(probe_timeout_s);
    case Reachability::unreachable: return probe.problem;
    case Reachability::answers:
    case Reachability::unknown_name:
    case Reachability::no_name_service: break;
  }
  return "";
}

/// Runs in a ForkedTask: describes each address, in order.
std::string probe_all(const std::vector<Address>& addresses) {
  BodyWriter writer;
  for (const Probe& probe : probe(addresses, probe_timeout_s)) writer.text(describe(probe));
  return writer.take();
}

}  // namespace

void LinkProber::start(const ProbePeers& request) {
  task_ = ForkedTask();
  round_ = request.round;
  members_.clear();
  std::vector<Address> addresses;
  for (const ProbeTarget& target : request.targets) {
    if (!is_ip_address(target.address) || target.port > std::numeric_limits<std::uint16_t>::max()) continue;
    members_.push_back(target.member);
    addresses.push_back({target.address, static_cast<std::uint16_t>(target.port)});
  }
  task_ = ForkedTask([&addresses]() { return probe_all(addresses); }, Deadline::after(3 * probe_timeout_s));
}

std::optional<PeersProbed> LinkProber::take_result() {
  const std::optional<std::string> answer = task_.take_result();
  if (!answer) return {};
  PeersProbed result{round_, {}};
  if (answer->empty()) return result;
  BodyReader reader(*answer);
  for (const std::uint64_t member : members_) {
    std::string why = reader.text();
    if (!why.empty()) result.unreachable.push_back({member, std::move(why)});
  }
  return result;
}

}  // namespace lockstep
