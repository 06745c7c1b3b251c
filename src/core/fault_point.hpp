// Named places where tests kill, stop or corrupt a process, and what its history is checked by. The program of
// tests/faults defines both functions; in every other program they do nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// `memory`: what a test may corrupt here.
void fault_point(std::string_view name, std::span<std::byte> memory = {});

/// Something that the history of a job consists of. Of a trainer: "step", "publish", "wait" for another rank, "waited".
/// Of a launcher: "start" of a trainer, its "end", "exit" of the launcher.
struct HistoryEvent {
  std::string_view what;
  std::uint64_t step = 0;
  std::uint64_t digest = 0;          ///< of the step's result
  std::string_view file = {};        ///< that was published
  std::string_view generation = {};  ///< its PMIx namespace, in a launcher; trainers know theirs
  std::int64_t trainer = 0;          ///< process id of the trainer that a launcher starts, or that ended
};
void record_event(const HistoryEvent& event);

}  // namespace lockstep
