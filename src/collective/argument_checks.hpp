// Argument checks shared by all communicators.
#pragma once

#include "collective/communicator.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <span>

namespace lockstep {

constexpr std::size_t max_all_gather_bytes = std::size_t{1} << 20U;

/// Throws InternalError if the text that `rank` passes to `all_gather` is too long.
inline void check_all_gather_size(std::size_t bytes, int rank) {
  if (bytes <= max_all_gather_bytes) return;
  throw InternalError(fmt::format("rank {} passes {} bytes to all_gather; the limit is 1 MiB", rank, bytes));
}

/// Throws InternalError unless `root` is a rank of the world.
inline void check_root(int root, int size) {
  if (root >= 0 && root < size) return;
  throw InternalError(fmt::format("root rank {} is not in the world of {} ranks", root, size));
}

/// Throws InternalError unless every bucket lies within the gradients.
inline void check_buckets(std::span<const Range> buckets, std::size_t gradient_elements) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].begin <= buckets[b].end && buckets[b].end <= gradient_elements) continue;
    throw InternalError(
        fmt::format("bucket {} is [{}, {}) of {} gradients", b, buckets[b].begin, buckets[b].end, gradient_elements));
  }
}

}  // namespace lockstep
