// See slice.hpp.
#include "core/slice.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <string>

namespace lockstep {

Slice slice_of(std::size_t count, std::size_t part, std::size_t parts) {
  if (part >= parts) {
    throw InternalError("slice_of was asked for part " + std::to_string(part) + " of " + std::to_string(parts) +
                        " parts; this is a fault of Lockstep, please report it.");
  }
  const std::size_t smaller = count / parts;
  const std::size_t larger_ones = count % parts;
  const std::size_t begin = part * smaller + std::min(part, larger_ones);
  return {begin, begin + smaller + (part < larger_ones ? 1 : 0)};
}

Slice rows_of_rank(std::size_t count, int rank, int ranks, std::size_t replicas) {
  const Slice mine = slice_of(replicas, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
  if (mine.size() == 0) return {};
  return {slice_of(count, mine.begin, replicas).begin, slice_of(count, mine.end - 1, replicas).end};
}

}  // namespace lockstep
