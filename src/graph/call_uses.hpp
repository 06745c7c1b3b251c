// Who reads what in a model: how often each layer is called, and how often each call's output is read.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <vector>

namespace lockstep {

/// The loss reads a model's outputs, and a layer's activity regularizer reads the output of each of its calls.
class CallUses {
 public:
  explicit CallUses(const Architecture& architecture);

  [[nodiscard]] int calls_of(int layer) const { return calls_[layer]; }
  [[nodiscard]] int readers_of(int call) const { return readers_[call]; }
  /// The last call that reads the output of this one; -1: none.
  [[nodiscard]] int last_reader_of(int call) const { return last_readers_[call]; }

 private:
  std::vector<int> calls_;         ///< by layer
  std::vector<int> readers_;       ///< by call
  std::vector<int> last_readers_;  ///< by call
};

/// Whether the layer adds a penalty of its outputs to the loss.
[[nodiscard]] bool is_penalized(const LayerInfo& layer);

}  // namespace lockstep
