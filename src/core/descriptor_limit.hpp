// How many files and sockets this process may have open.
#pragma once

#include <cstddef>

namespace lockstep {

/// Raises the soft limit of open descriptors as far as allowed, at most to 131,072, and returns it.
std::size_t raise_descriptor_limit() noexcept;

}  // namespace lockstep
