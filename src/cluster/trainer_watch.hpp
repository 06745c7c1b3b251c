// What this launcher's trainers have told of themselves last, and since when they are silent. The coordinator judges
// silences, but they are measured here, beside the trainers, where no slow network adds to them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cluster/message.hpp"

namespace lockstep {

class TrainerWatch {
 public:
  /// `between`: seconds between two messages about a rank.
  explicit TrainerWatch(double between) : between_(between) {}

  /// Its trainer runs. It may be any program: what has never told of itself is not watched.
  void begin(std::uint64_t rank) { ranks_[rank] = {}; }
  void hear(std::uint64_t rank, const Progress& report, double now);
  void end(std::uint64_t rank) { ranks_.erase(rank); }

  [[nodiscard]] bool has_told(std::uint64_t rank) const;

  /// What the coordinator should know by now.
  [[nodiscard]] std::vector<Progress> take_due(double now);

  [[nodiscard]] std::vector<Progress> ranks(double now) const;
  /// The last that one told who had done a step; kept when it has ended.
  [[nodiscard]] const std::optional<Progress>& furthest() const noexcept { return furthest_; }

 private:
  struct Watched {
    std::optional<Progress> last;
    double heard = 0;
    double next = 0;  ///< message about it
  };

  [[nodiscard]] static Progress up_to_date(Progress last, double heard, double now);

  double between_;
  std::map<std::uint64_t, Watched> ranks_;
  std::optional<Progress> furthest_;
};

}  // namespace lockstep
