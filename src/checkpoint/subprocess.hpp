// Runs code that may crash or loop forever in a child process, and receives its results through a pipe. HDF5 does both
// on damaged files: of 4,000 files with a few random bytes changed, version 1.10.8 crashed on 33 and looped on 5. A
// trainer must survive that.
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace lockstep {

/// The child's end of the pipe.
class PipeWriter {
 public:
  explicit PipeWriter(int descriptor) : descriptor_(descriptor) {}
  void send(std::span<const std::byte> bytes) const;
  void send(std::uint64_t number) const;
  void send(const std::string& text) const;

 private:
  int descriptor_;
};

/// A forked copy of this process. The child must not use threads or devices.
class Subprocess {
 public:
  struct Limits {
    double cpu_seconds = 10;                         ///< of CPU time, after which the child is killed
    std::uint64_t memory = std::uint64_t{4} << 30U;  ///< bytes more than the parent has, beyond which allocations fail
    double silence_seconds = 600;                    ///< without a byte, after which the child has not answered
    double report_seconds = 30;                      ///< of silence, after which a log line tells of the wait
  };

  /// Runs `work` in the child, which exits when `work` returns. Throws IoError if the child cannot start.
  Subprocess(const std::function<void(PipeWriter&)>& work, const Limits& limits);
  ~Subprocess();  ///< kills the child if it still runs; leaves one behind that the kernel does not end
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  /// Receive the child's values; the calls must match those of its PipeWriter. Return false if the child ended early,
  /// sends nothing for too long, or sent a text longer than `max_bytes`.
  [[nodiscard]] bool receive(std::span<std::byte> bytes) const;
  [[nodiscard]] bool receive(std::uint64_t& number) const;
  [[nodiscard]] bool receive(std::string& text, std::uint64_t max_bytes) const;

  struct Exit {
    std::string
        description;       ///< completes "the process that read it ...": "was killed by signal 11 (Segmentation fault)"
    bool crashed = false;  ///< by its own fault: a crash, endless work, or invalid output; not by a kill from outside
    std::string remedy = "free memory and try again";  ///< if it has not crashed
  };

  /// Ends the child. Call it at most once, after receive() has returned false.
  [[nodiscard]] Exit end();

 private:
  [[nodiscard]] bool wait_for_bytes() const;

  Limits limits_;
  mutable bool is_silent_ = false;  ///< for too long
  pid_t pid_ = -1;
  int descriptor_ = -1;
};

/// True if this process can allocate as much memory as its child was allowed to. Call it in the child after bad_alloc:
/// it lifts the child's limit, so false means that the machine or the user's limits are the cause.
[[nodiscard]] bool can_allocate(std::uint64_t memory) noexcept;

}  // namespace lockstep
