// See range.hpp.
#include "core/range.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

Range slice_of(std::size_t count, std::size_t index, std::size_t slices) {
  if (index >= slices) {
    throw InternalError(fmt::format("slice_of: index {} is not below the number of slices {}", index, slices));
  }
  const std::size_t smaller = count / slices;
  const std::size_t larger_ones = count % slices;
  const std::size_t begin = index * smaller + std::min(index, larger_ones);
  return {begin, begin + smaller + (index < larger_ones ? 1 : 0)};
}

Range examples_of_rank(std::size_t count, int rank, int ranks, std::size_t replicas) {
  const Range mine = slice_of(replicas, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
  if (mine.empty()) return {};
  return {slice_of(count, mine.begin, replicas).begin, slice_of(count, mine.end - 1, replicas).end};
}

std::size_t max_examples_per_rank(std::size_t count, int ranks, std::size_t replicas) {
  std::size_t max_examples = 0;
  for (int rank = 0; rank < ranks; ++rank)
    max_examples = std::max(max_examples, examples_of_rank(count, rank, ranks, replicas).size());
  return max_examples;
}

}  // namespace lockstep
