// Tensor parallelism: shards a model's layers over the ranks. Every rank computes the whole batch, but only its shard
// of a layer's output channels (column-parallel), and its shard of the input features of the Dense layer or convolution
// that consumes them (row-parallel). The outputs of a row-parallel operation are partial sums, which the ranks
// all-reduce within the step. This replaces the all-reduce of the gradients.
//
// The first layers may stay data parallel if they compute much but have few weights. Before the first tensor-parallel
// layer, an all-to-all then gives each rank its channels of all examples.
//
// A value between two operations is whole or a shard of the channels. The gradient of a whole value is whole or a
// partial sum. Backward is linear, so partial sums may propagate back through replicated layers. Then only the
// gradients of these layers' weights are all-reduced.
#pragma once

#include "backend/backend.hpp"
#include "core/range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// How an operation is distributed over the ranks.
enum class Split {
  replicated,  ///< every rank computes the whole operation
  partial,     ///< replicated in forward; in backward each rank's gradients are partial sums
  column,      ///< column-parallel: a shard of the output channels; also per-channel operations on such a shard
  row,         ///< row-parallel: a shard of the input features
  batch,       ///< data parallel: only the operations before the first row-parallel one
};

/// The letter of each Split in Sharding::code, in the order of the enum.
inline constexpr const char* split_letters = "apcre";

using ChannelRange = BasicRange<std::int64_t>;

/// A rank's shard of `count` channels: a multiple of 16 or 8, which kernels prefer, if there are enough channels.
[[nodiscard]] ChannelRange channels_of(std::int64_t count, int rank, int ranks) noexcept;

/// How a variable is sharded: as an array [outer][length][inner], it is split along the middle axis. length 0: not
/// sharded.
struct ShardAxis {
  std::int64_t outer = 1;
  std::int64_t length = 0;
  std::int64_t inner = 1;
};

/// The speed of a network and of a rank.
struct HardwareModel {
  double latency = 50e-6;                 ///< seconds per message
  double bytes_per_second = 1.25e9;       ///< of a link, in one direction
  double flops_per_second = 100e9;        ///< of a rank
  double memory_bytes_per_second = 10e9;  ///< of a rank's updates and elementwise operations
};

struct Sharding {
  int ranks = 1;
  std::vector<Split> splits;         ///< of each operation of the unsharded Graph::forward
  std::vector<ShardAxis> variables;  ///< of each variable of the model
  double estimated_seconds = 0;      ///< per step, in the cost model that chose it

  /// One letter per operation. Backups record it, because calibration may choose a different sharding next time.
  [[nodiscard]] std::string code() const;

  /// False if every operation is replicated, which is best on a very slow network.
  [[nodiscard]] bool is_any_sharded() const;

  /// One line per operation; the same on all ranks.
  [[nodiscard]] std::string to_string(const Graph& whole) const;

  friend bool operator==(const Sharding& a, const Sharding& b) { return a.ranks == b.ranks && a.splits == b.splits; }
};

/// The fastest tensor-parallel sharding in the cost model; nullopt if no layer of the model can be sharded.
[[nodiscard]] std::optional<Sharding> search_sharding(const Graph& whole, int ranks, std::size_t batch,
                                                      const HardwareModel& hardware);

/// Every rank computes the whole model on the whole batch, and only metrics are all-reduced. As fast as one rank, on
/// any network.
[[nodiscard]] Sharding replicate_all(const Graph& whole, int ranks, std::size_t batch, const HardwareModel& hardware);

/// The sharding with this code; nullopt if the code does not fit this model.
[[nodiscard]] std::optional<Sharding> sharding_from_code(const Graph& whole, int ranks, const std::string& code);

/// Seconds of a data-parallel step in the same cost model.
[[nodiscard]] double estimate_data_parallel(const Graph& whole, int ranks, std::size_t batch,
                                            const HardwareModel& hardware);

/// Why `search_sharding` finds nothing, as a clause: "layer 'softmax' needs all of the channels of layer 'dense'".
[[nodiscard]] std::string why_not_tensor_parallel(const Graph& whole);

/// The graph of `rank`'s shard of the model, with the layouts that `backend` chooses for up to `batch` examples.
[[nodiscard]] Graph shard_graph(const Graph& whole, const Sharding& sharding, int rank, std::size_t batch,
                                const Backend& backend);

}  // namespace lockstep
