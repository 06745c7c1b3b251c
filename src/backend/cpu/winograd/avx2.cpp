// The kernels of kernels.hpp for AVX2, which CMake compiles with its options.
#include "backend/cpu/winograd/vector_kernels.hpp"

namespace lockstep::winograd {

const KernelTable& avx2_kernels() noexcept { return VectorKernels<8>::kernels; }

}  // namespace lockstep::winograd
