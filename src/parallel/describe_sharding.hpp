// Describes, in words, a sharding that a backup recorded, so that users can choose the same one again.
#pragma once

#include "backend/backend.hpp"

#include <string>

namespace lockstep {

/// `provenance` is the entry "parallelism" of RankModel::provenance(): "tensor appppccra". Returns "2 workers, tensor
/// parallel: conv2d column-parallel, dense row-parallel".
[[nodiscard]] std::string describe_sharding(const std::string& provenance, const Graph& whole, int ranks);

}  // namespace lockstep
