// Which processes can share memory: those of one running kernel that see one /dev/shm.
#pragma once

#include <string>

namespace lockstep {

/// Equal in two processes exactly if they can share memory; empty where nobody can share with this one.
[[nodiscard]] std::string host_identity();

/// As the kernel knows it: in a pod the pod's name.
[[nodiscard]] std::string host_name();

}  // namespace lockstep
