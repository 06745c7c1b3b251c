// What a launcher knows of its job, for whoever asks how it is. The chief knows all of it; another launcher knows its
// own trainers and the chief.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/message.hpp"

namespace lockstep {

enum class JobPhase : std::uint8_t {
  waiting,   ///< for other workers
  training,  ///< a generation runs
  ending,    ///< of a generation, or the job: something still runs here
};

struct PeerStatus {
  std::string name;  ///< "worker 1"
  bool is_here = false;
  double silence = 0;  ///< seconds since it was heard
};

struct RankStatus {
  std::string worker;
  Progress last;  ///< its silence is up to date
};

struct JobStatus {
  std::string worker;  ///< whose launcher this is
  JobPhase phase = JobPhase::waiting;
  std::string waiting_for;  ///< with `waiting`: who, and why
  std::string problem;      ///< why all is not well; empty where it is
  std::uint64_t generation = 0;
  std::vector<PeerStatus> peers;     ///< those that this launcher has, or shall have, a connection to
  std::vector<RankStatus> ranks;     ///< that train
  std::optional<Progress> furthest;  ///< the last that was heard of training, also while none runs
};

}  // namespace lockstep
