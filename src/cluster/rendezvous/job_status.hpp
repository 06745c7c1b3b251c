// A launcher's view of its job, as the status port reports it. The chief's launcher sees the whole job; any other
// launcher sees its own trainers and its connection to the chief.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/rendezvous/message.hpp"
#include "core/enum_names.hpp"

namespace lockstep {

enum class JobPhase : std::uint8_t {
  waiting,   ///< waits for other workers
  training,  ///< trainers run
  ending,    ///< a generation or the job ends, and processes still run here
};

struct PeerStatus {
  std::string name;  ///< "worker 1"
  bool is_connected = false;
  double silent_seconds = 0;  ///< since its last message
};

/// Why a generation ended that another one replaced.
enum class RestartCause {
  left,      ///< SIGTERM
  lost,      ///< a launcher
  killed,    ///< a trainer, by a signal
  exited,    ///< a trainer, with an exit code
  stalled,   ///< no step, or no start, in time
  failed,    ///< anything else: a launcher could not start or watch its processes
  rejoined,  ///< a worker came back
};

template <>
struct EnumNames<RestartCause> {
  static constexpr std::array all{
      std::pair{RestartCause::left, "left"},        std::pair{RestartCause::lost, "lost"},
      std::pair{RestartCause::killed, "killed"},    std::pair{RestartCause::exited, "exited"},
      std::pair{RestartCause::stalled, "stalled"},  std::pair{RestartCause::failed, "failed"},
      std::pair{RestartCause::rejoined, "rejoined"}};
};

struct RankStatus {
  std::string worker;
  Progress last;  ///< with silent_seconds up to now
};

struct JobStatus {
  std::string worker;     ///< the task of this launcher
  bool is_chief = false;  ///< it reports what belongs to the whole job
  JobPhase phase = JobPhase::waiting;
  std::string waiting_for;  ///< while `waiting`: which workers, and why
  std::string problem;      ///< why the job is unhealthy; empty if it is healthy
  std::uint64_t generation = 0;
  std::map<RestartCause, std::uint64_t> restarts;
  std::vector<PeerStatus> peers;            ///< launchers to which this one has, or should have, a connection
  std::vector<RankStatus> ranks;            ///< this launcher's ranks that train
  std::optional<Progress> latest_progress;  ///< of its first rank that trains, kept between generations
};

}  // namespace lockstep
