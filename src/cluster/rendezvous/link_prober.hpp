// Connects to the ports of other launchers, to prove the links to their hosts (link_probes.hpp). Nothing is sent over
// these connections.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/net/forked_task.hpp"
#include "cluster/rendezvous/message.hpp"

namespace lockstep {

class LinkProber {
 public:
  /// Probes the targets of the request; gives up those of an earlier one. Throws InternalError if no process can be
  /// forked.
  void start(const ProbePeers& request);

  /// Becomes readable (POLLIN) when the result is available; -1 while nothing is probed.
  [[nodiscard]] int descriptor() const noexcept { return task_.descriptor(); }

  /// Returns the result once; nullopt while targets are probed. Targets that could not be probed count as reachable.
  [[nodiscard]] std::optional<PeersProbed> take_result();

 private:
  ForkedTask task_;
  std::uint64_t round_ = 0;
  std::vector<std::uint64_t> members_;  ///< in the order of the task's answers
};

}  // namespace lockstep
