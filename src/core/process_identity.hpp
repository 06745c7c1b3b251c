// Names a process for all time, so that another one can tell later whether it has died.
#pragma once

#include <sys/types.h>
#include <unistd.h>
#include <string>

namespace lockstep {

/// Tells a process, this one by default, from every other one, also from those in other containers and on other hosts:
/// "BOOT-NAMESPACE-PID-START", of which the first two say where the process number means something.
[[nodiscard]] std::string process_identity(pid_t process = getpid());

/// Whether this process could see the process of that identity, and does not. False for text that is no identity.
[[nodiscard]] bool has_died(const std::string& identity);

}  // namespace lockstep
