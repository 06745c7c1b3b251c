// Bodies of our kernels are structures with `operator()(index)`: the device runs them in parallel, the tests run them
// in plain loops on the host, where no device is needed.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep::cuda {

/// Elements are counted in 32 bits, which a GPU divides much faster than 64; launches check that they suffice.
using Index = std::uint32_t;

}  // namespace lockstep::cuda
