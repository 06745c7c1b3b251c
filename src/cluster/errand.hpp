// What takes its time and cannot be polled (looking up names), done in a forked process whose answer comes through a
// pipe: so a launcher has no threads, and may fork without executing another program.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "cluster/deadline.hpp"
#include "cluster/socket.hpp"

namespace lockstep {

class Errand {
 public:
  /// None.
  Errand() = default;
  /// Runs `work` in a process of its own, which is killed at the deadline, with this object, and with this process.
  Errand(const std::function<std::string()>& work, Deadline deadline);
  ~Errand() { cancel(); }
  Errand(Errand&& other) noexcept;
  Errand& operator=(Errand&& other) noexcept;

  [[nodiscard]] bool runs() const noexcept { return process_ > 0; }
  /// Polls as readable (POLLIN) when there is something to take; -1 for none.
  [[nodiscard]] int descriptor() const noexcept { return pipe_.descriptor(); }
  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }

  /// What `work` returned, once it is there; then none runs. An empty text where it failed, or was late.
  [[nodiscard]] std::optional<std::string> take();

 private:
  void cancel() noexcept;

  pid_t process_ = -1;
  Socket pipe_;
  Deadline deadline_ = Deadline::never();
  std::string answer_;
};

}  // namespace lockstep
