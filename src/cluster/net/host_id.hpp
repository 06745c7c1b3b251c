// The identity of a host. Processes share memory in an MPI world if they run on the same kernel with the same /dev/shm
// and the same network: Open MPI needs both on one host.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Equal in two processes if and only if they may be ranks of one host; empty if this process cannot share memory.
[[nodiscard]] std::string host_id();

/// The prefix of a host_id() that is the same in all containers of a machine, whether or not they share memory.
[[nodiscard]] std::string_view machine_id(std::string_view identity);

/// The kernel's host name; in a pod, the name of the pod.
[[nodiscard]] std::string host_name();

}  // namespace lockstep
