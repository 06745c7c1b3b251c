// Which backends this build has.
#pragma once

#include "backend/backend.hpp"

#include <memory>

namespace lockstep {

/// oneDNN on `threads` cores of this machine.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads);

/// True if the library was built with the CUDA backend.
[[nodiscard]] constexpr bool has_cuda_backend() noexcept { return false; }

}  // namespace lockstep
