// Runs code that may crash or never end, and speaks to it through a pipe. HDF5 does both on damaged files: of 4,000
// files with a few random bytes changed, 1.10.8 crashed on 33 and looped on 5. A trainer must not die of that.
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace lockstep {

/// The child's end of the pipe, one way.
class ChildOutput {
 public:
  explicit ChildOutput(int descriptor) : descriptor_(descriptor) {}
  void send(std::span<const std::byte> bytes) const;
  void send(std::uint64_t number) const;
  void send(const std::string& text) const;

 private:
  int descriptor_;
};

/// A forked copy of this process. It may use neither threads nor devices; it inherits everything else.
class ChildProcess {
 public:
  /// `work` runs in the child, which ends with it, is killed after `cpu_seconds` of processor time, and is out of
  /// memory when it has taken `memory` bytes beyond what its parent has.
  ChildProcess(const std::function<void(ChildOutput&)>& work, unsigned cpu_seconds,
               std::uint64_t memory = std::uint64_t{4} << 30U);
  ~ChildProcess();  ///< kills the child if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// What the child sent, in order. False if it ended (or sent something longer than `most`) before that was complete.
  [[nodiscard]] bool receive(std::span<std::byte> bytes) const;
  [[nodiscard]] bool receive(std::uint64_t& number) const;
  [[nodiscard]] bool receive(std::string& text, std::uint64_t most) const;

  /// How a child that sent too little came to its end: "was killed by signal 11 (Segmentation fault)". Call it once.
  [[nodiscard]] std::string describe_end();

 private:
  pid_t pid_ = -1;
  int descriptor_ = -1;
};

}  // namespace lockstep
