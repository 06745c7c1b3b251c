// Runs a blocking call (a DNS lookup) in a forked process that returns its result through a pipe. The launcher
// therefore needs no threads, and can fork without exec.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "cluster/net/socket.hpp"
#include "core/deadline.hpp"

namespace lockstep {

class ForkedTask {
 public:
  /// Holds no task.
  ForkedTask() = default;
  /// Runs `work` in a forked process, which is killed at the deadline, by the destructor, or when this process ends.
  /// One that the kernel does not end is left behind (killed_process.hpp).
  ForkedTask(const std::function<std::string()>& work, Deadline deadline);
  ~ForkedTask() { cancel(); }
  ForkedTask(ForkedTask&& other) noexcept;
  ForkedTask& operator=(ForkedTask&& other) noexcept;

  [[nodiscard]] bool is_running() const noexcept { return process_ > 0; }
  /// Becomes readable (POLLIN) when the result is available; -1 without a task.
  [[nodiscard]] int descriptor() const noexcept { return pipe_.descriptor(); }
  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }

  /// Returns the result of `work` once and then holds no task; nullopt while the task runs. The result is empty if
  /// `work` failed or missed its deadline.
  [[nodiscard]] std::optional<std::string> take_result();

 private:
  void cancel() noexcept;

  pid_t process_ = -1;
  Socket pipe_;
  Deadline deadline_ = Deadline::never();
  std::string answer_;
};

}  // namespace lockstep
