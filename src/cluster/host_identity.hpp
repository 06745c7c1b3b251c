// Which processes can share memory: those of one running kernel that see one /dev/shm.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Equal in two processes exactly if they can share memory; empty where nobody can share with this one.
[[nodiscard]] std::string host_identity();

/// The part of an identity that containers of one machine have in common, whether they share memory or not.
[[nodiscard]] std::string_view machine_of(std::string_view identity);

/// As the kernel knows it: in a pod the pod's name.
[[nodiscard]] std::string host_name();

}  // namespace lockstep
