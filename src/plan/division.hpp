// How a model's layers are divided over the ranks by features instead of by examples: every rank computes the whole
// batch, but of a divided layer only its slice of output channels (columns) and, of the Dense layer or convolution that
// consumes them, its slice of input features (rows). What rows give are partial sums, which the ranks add up within the
// step: that is all that travels, instead of the gradients of all weights.
//
// The layers in front may stay divided by examples, where they compute much and weigh little: each rank computes them
// on its rows of the batch, and before the first layer divided by features ranks hand each other what they then need,
// everybody's examples of one's own channels.
//
// A value between two operations is whole or a slice of its channels; the gradient of a whole value is whole, or a part
// that only the sum over the ranks makes whole. Backward is linear, so parts may travel back through layers that every
// rank repeats: then only the gradients of these layers' weights are summed.
#pragma once

#include "backend/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// How an operation is computed.
enum class Way {
  repeated,  ///< whole, by every rank
  partial,   ///< the same forward; of the gradients each rank has a part
  columns,   ///< a slice of the output channels; what acts on each channel alone passes it on
  rows,      ///< a slice of the input features
  examples,  ///< whole, on a rank's rows of the batch; gradients are summed. From the first operation on, up to rows
};

/// One for each way, in their order.
inline constexpr const char* way_letters = "apcre";

/// A range [begin, end) of channels.
struct Channels {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const noexcept { return end - begin; }
};

/// The channels of `count` that a rank computes: by sixteens or eights, as kernels like them, where there are enough.
[[nodiscard]] Channels channels_of(std::int64_t count, int rank, int ranks) noexcept;

/// Which part of a variable the ranks hold: its values, seen as [outer][axis][inner], are divided along the axis. Not
/// divided where axis is 0.
struct VariableAxis {
  std::int64_t outer = 1;
  std::int64_t axis = 0;
  std::int64_t inner = 1;
};

/// How fast a network and a rank are.
struct Speeds {
  double latency = 50e-6;            ///< seconds a message
  double bytes_per_second = 1.25e9;  ///< of a link, one way
  double flops_per_second = 100e9;   ///< of a rank
  double memory_per_second = 10e9;   ///< bytes that a rank's update and elementwise operations pass through
};

struct FeatureDivision {
  int ranks = 1;
  std::vector<Way> ways;                ///< of each operation of the whole Graph::forward
  std::vector<VariableAxis> variables;  ///< of each variable of the model
  double estimated_seconds = 0;         ///< a step, in the model of costs that chose it

  /// A letter an operation: what a backup keeps of a choice that measuring made.
  [[nodiscard]] std::string code() const;

  /// False where every rank computes all: better than waiting for a slow network.
  [[nodiscard]] bool divides_anything() const;

  /// A line an operation; the same on all ranks.
  [[nodiscard]] std::string to_string(const Graph& whole) const;

  friend bool operator==(const FeatureDivision& a, const FeatureDivision& b) {
    return a.ranks == b.ranks && a.ways == b.ways;
  }
};

/// The division by features that takes the least time in a model of costs; none where the model has no layers that can
/// be divided so.
[[nodiscard]] std::optional<FeatureDivision> divide_by_features(const Graph& whole, int ranks, std::size_t batch,
                                                                const Speeds& speeds);

/// Every rank computes the whole model on the whole batch, and nothing but metrics travels: as fast as one rank,
/// however slow the network.
[[nodiscard]] FeatureDivision divide_nothing(const Graph& whole, int ranks, std::size_t batch, const Speeds& speeds);

/// The division that has this code; none where it is none of this model's.
[[nodiscard]] std::optional<FeatureDivision> division_of(const Graph& whole, int ranks, const std::string& code);

/// A step by examples in the same model of costs.
[[nodiscard]] double estimate_by_examples(const Graph& whole, int ranks, std::size_t batch, const Speeds& speeds);

/// What a product with a kernel takes for an example, forward; 0 of other operations.
[[nodiscard]] double multiply_adds(const Graph& whole, const Operation& operation);

/// What the whole model takes for an example, forward, in multiply-adds; each element of an operation's output besides
/// counts as some of them.
[[nodiscard]] double work_of(const Graph& whole);

/// Why `divide_by_features` finds nothing: "layer 'softmax' needs all channels of its input ...".
[[nodiscard]] std::string why_not_by_features(const Graph& whole);

/// What `rank` computes of the model, with the layouts of `backend`, for batches of up to `batch` examples.
[[nodiscard]] Graph part_of(const Graph& whole, const FeatureDivision& division, int rank, std::size_t batch,
                            const Backend& backend);

}  // namespace lockstep
