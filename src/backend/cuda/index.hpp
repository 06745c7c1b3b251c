// The index of an element in a kernel. Kernels are functors with `operator()(index)`: the device runs them in parallel,
// the tests run them in plain loops on the host.
#pragma once

#include "core/host_device.hpp"

#include <cstdint>

namespace lockstep::cuda {

/// 32 bits, because GPUs divide 32-bit integers much faster than 64-bit ones. for_each checks the range.
using Index = std::uint32_t;

}  // namespace lockstep::cuda
