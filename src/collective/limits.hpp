// What every communicator refuses alike.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collective/communicator.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

constexpr std::size_t max_gathered_bytes = std::size_t{1} << 20U;

/// Throws InternalError unless `all_gather` takes a text of so many bytes from `rank`.
inline void check_gathered(std::size_t bytes, int rank) {
  if (bytes <= max_gathered_bytes) return;
  throw InternalError("rank " + std::to_string(rank) + " hands " + std::to_string(bytes) +
                      " bytes to all_gather, which takes 1 MiB at most");
}

/// Throws InternalError unless `root` is a rank of the world.
inline void check_root(int root, int size) {
  if (root >= 0 && root < size) return;
  throw InternalError("a broadcast from rank " + std::to_string(root) + " in a world of " + std::to_string(size));
}

/// Throws InternalError unless every bucket lies within the gradients.
inline void check_buckets(std::span<const BucketRange> buckets, std::size_t gradient_elements) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].begin <= buckets[b].end && buckets[b].end <= gradient_elements) continue;
    throw InternalError("bucket " + std::to_string(b) + " is [" + std::to_string(buckets[b].begin) + ", " +
                        std::to_string(buckets[b].end) + ") of " + std::to_string(gradient_elements) + " gradients");
  }
}

}  // namespace lockstep
