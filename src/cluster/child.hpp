// One trainer, as its launcher owns it: a process in a group of its own, so that what it starts ends with it, and a
// socket pair, whose end of file tells either that the other is gone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/message.hpp"
#include "cluster/socket.hpp"
#include "core/environment.hpp"
#include "core/request.hpp"

namespace lockstep {

/// How a process has ended.
struct ChildEnd {
  int code = 0;    ///< its exit code, if it
  int signal = 0;  ///< was not killed by this
};

class Child {
 public:
  /// Runs `command`, whose first word is a path, with exactly this environment and LOCKSTEP_CONTROL_FD. What cannot be
  /// executed says so and ends with 64. For processes without threads. Throws IoError where there is no room for it.
  Child(const std::vector<std::string>& command, const Environment& environment);
  ~Child();  ///< kills it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// To it and all in its group.
  void signal(int number) const noexcept;

  /// Somebody has stopped it (SIGSTOP), and it has not gone on since.
  [[nodiscard]] bool is_stopped() const;

  /// Once, after it has ended; what is left of its group is killed.
  [[nodiscard]] std::optional<ChildEnd> reap() noexcept;

  /// Does nothing where it cannot hear it any more.
  void ask(Request request) const noexcept;

  /// Polls as readable when it has told something; -1 once it is silent for ever.
  [[nodiscard]] int control() const noexcept { return control_.descriptor(); }
  /// The last that it has told of itself since the last time. What makes no sense is passed over.
  [[nodiscard]] std::optional<Progress> take_report();

 private:
  pid_t pid_ = -1;
  Socket control_;
};

/// The path that a shell would execute for `name`. Throws UsageError where there is none.
[[nodiscard]] std::string find_program(const std::string& name, const Environment& environment);

}  // namespace lockstep
