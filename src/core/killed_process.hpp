// Reaps children that were sent SIGKILL, within a bounded time. The kernel does not end a process that waits inside it
// and is never woken, as for the server of a network file system that is gone: a launcher that waited for such a child
// would hang in silence.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace lockstep {

/// The letter of the process's state in /proc, or 0 if it is unknown.
[[nodiscard]] char process_state(pid_t pid);
/// The state and where the kernel holds the process, for a log: "D in nfs_wait_bit_killable"; empty if it is unknown.
[[nodiscard]] std::string describe_process_state(pid_t pid);

/// Returns the status of waitpid(), or 0 if the child was already reaped; nullopt if it has not ended in time.
[[nodiscard]] std::optional<int> reap_within(pid_t pid, double seconds) noexcept;

/// Reaps a child that was sent SIGKILL, and returns as reap_within(). After `seconds`, logs a warning that names the
/// child, `what` ("the PMIx server"), and leaves it behind: a later call reaps it once it has ended, or init does.
std::optional<int> reap_killed(pid_t pid, double seconds, const std::string& what) noexcept;

}  // namespace lockstep
