// What the machine grants this process of its processors.
#pragma once

#include <cstddef>

namespace lockstep {

/// CPU time per time, in cores: by affinity and by the control group's quota, which may be less than one.
[[nodiscard]] double granted_cores();

/// Whole cores of those, at least one.
[[nodiscard]] std::size_t available_cores();

}  // namespace lockstep
