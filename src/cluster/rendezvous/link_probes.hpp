// The links between the hosts of a job, which are proved before each generation. Launchers talk to the chief only, but
// the ranks of all hosts connect to each other: where two hosts cannot, MPI hangs in every generation. So the
// coordinator asks all members to connect to each other's ports, and begins no generation while a link is cut. No
// sockets and no clock: messages and the time go in and come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/rendezvous/message.hpp"
#include "cluster/rendezvous/placement.hpp"

namespace lockstep {

class LinkProbes {
 public:
  /// `tasks`: names of the members.
  explicit LinkProbes(std::vector<std::string> tasks) : tasks_(std::move(tasks)) {}

  /// Forgets all results, as after a change of the members or the end of a generation.
  void reset() noexcept;

  /// Starts a round, unless one runs, a pause lasts, or all links are proved: send the request to all of `members`, who
  /// stay the same until reset().
  [[nodiscard]] std::optional<ProbePeers> next_round(std::span<const PeerInfo> members, double now);

  /// Returns true if this was the round's last result, and it differs from that of the round before. Throws DataError
  /// for a result that was not asked for.
  [[nodiscard]] bool receive(std::size_t member, const PeersProbed& result, double now);

  /// True if every member reaches every other one, or needs not, as on one host.
  [[nodiscard]] bool are_proved() const noexcept { return are_proved_; }
  /// Which links were cut in the last round: "worker 1 (10.0.0.2) cannot reach worker 2 (10.0.0.3): no answer within
  /// 3 s"; empty if none was.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// The member that could not reach another one, if problem() names a link: the first of them.
  [[nodiscard]] std::size_t first_without_link() const { return cut_links_.begin()->first.first; }

 private:
  [[nodiscard]] std::string describe_cut_links() const;
  [[nodiscard]] std::string name_of(std::uint64_t member) const;

  std::vector<std::string> tasks_;
  std::vector<ProbeTarget> targets_;
  std::uint64_t round_ = 0;          ///< of the last request
  std::set<std::uint64_t> awaited_;  ///< members whose results of the round are missing
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> cut_links_;  ///< of this round: from, to, and why
  std::string problem_;
  bool are_proved_ = false;
  double pause_ = 0;  ///< after the next round that fails
  double next_round_at_ = 0;
};

}  // namespace lockstep
