// A table for users: how each layer of a model is sharded, and how many bytes it sends.
#pragma once

#include "parallel/sharding.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct LayerSharding {
  std::string layer;
  std::string how;          ///< "column-parallel, 16 + 16"
  double bytes_a_step = 0;  ///< sent by each rank
};

/// One row per layer that computes. Without a sharding the model is data parallel. `batch` is the global batch size.
[[nodiscard]] std::vector<LayerSharding> layer_shardings(const Graph& whole, const std::optional<Sharding>& sharding,
                                                         int ranks, std::size_t batch);

/// The rows as lines with aligned columns.
[[nodiscard]] std::string to_text(const std::vector<LayerSharding>& rows);

}  // namespace lockstep
