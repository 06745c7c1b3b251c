// A trainer that its launcher owns. It runs in a process group, so that its children end with it, and a socket pair
// connects it to the launcher. Each side reads end-of-file when the other dies.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/net/kept_files.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/message.hpp"
#include "core/environment.hpp"
#include "core/stop_request.hpp"

namespace lockstep {

/// How a trainer ended. A code of 0 says that its work is complete; see TrainerProcess::reap.
struct ProcessExit {
  int code = 0;                   ///< exit code; 0 if a signal killed the process
  int signal = 0;                 ///< the signal that killed the process, or 0
  std::string error = {};         ///< what the trainer reported before it ended
  bool is_wrapper = false;        ///< the reports came from another process: a script ran the trainer
  bool tasks_never_came = false;  ///< other tasks did not connect in time
};

class TrainerProcess {
 public:
  /// Runs `command`, whose first word is a path, with this environment plus LOCKSTEP_CONTROL_FD. It inherits the kept
  /// files, which LOCKSTEP_KEPT_FILES names; take_report() and reap() add those that it asks to keep. If the program
  /// cannot be executed, the child logs the reason and exits with 64. The caller must have no threads. Throws IoError
  /// if fork() or socketpair() fails.
  TrainerProcess(const std::vector<std::string>& command, const Environment& environment, KeptFiles& kept_files);
  ~TrainerProcess();  ///< kills the process group, and waits for the process for a bounded time
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;

  /// -1 once the process has ended.
  [[nodiscard]] pid_t id() const noexcept { return pid_; }

  /// Sends a signal to the process group.
  void signal(int number) noexcept;

  /// Makes the process that has reported progress last print its stack (stack_report.hpp). It may be a child of the
  /// command, which would end at the signal.
  void request_stack() const noexcept;
  /// The state of the process for a log: "D in nfs_wait_bit_killable"; empty if it is unknown.
  [[nodiscard]] std::string describe_state() const;

  /// Returns the exit status once the process has ended, and kills the rest of its group; nullopt otherwise. A process
  /// that SIGTERM ended did not complete its work, even if its handler exits with 0: the code is 75 then. Nor did a
  /// script that exits with 0 although the Lockstep program that it ran has not: the code is 70.
  [[nodiscard]] std::optional<ProcessExit> reap();

  /// Waits no more for a process that SIGKILL does not end; a warning names it as `what`.
  void leave_behind(const std::string& what) noexcept;

  /// Sends a request to the trainer; does nothing if the trainer is gone.
  void send_request(StopRequest request) const noexcept;

  /// Becomes readable when the trainer has sent a report; -1 after end of file.
  [[nodiscard]] int control() const noexcept { return control_.descriptor(); }
  /// Returns the latest report since the last call; skips invalid ones.
  [[nodiscard]] std::optional<Progress> take_report();

 private:
  void end_second_program();
  [[nodiscard]] ProcessExit judge(int status, bool is_wrapper);

  pid_t pid_ = -1;
  pid_t reporter_ = -1;  ///< the process of the group that sent the last report
  bool is_second_program_ = false;
  bool was_told_to_end_ = false;  ///< by SIGTERM
  bool has_finished_ = false;     ///< the reporter exits with 0, and was not told to end
  Socket control_;
  bool tasks_never_came_ = false;
  std::string error_;
  KeptFiles& kept_files_;
};

/// The path that a shell would execute for `name`. Throws UsageError if there is no such program.
[[nodiscard]] std::string find_program(const std::string& name, const Environment& environment);

}  // namespace lockstep
