// The kernels of kernels.hpp for AVX-512, which CMake compiles with its options.
#include "backend/cpu/winograd/vector_kernels.hpp"

namespace lockstep::winograd {

const KernelTable& avx512_kernels() noexcept { return VectorKernels<16>::kernels; }

}  // namespace lockstep::winograd
