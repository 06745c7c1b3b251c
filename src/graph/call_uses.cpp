// See call_uses.hpp.
#include "graph/call_uses.hpp"

#include "layers/layer_registry.hpp"

#include <cstddef>

namespace lockstep {

bool is_penalized(const LayerInfo& layer) { return !activity_regularizer_of(layer.layer).is_none(); }

CallUses::CallUses(const Architecture& architecture)
    : calls_(architecture.layers().size(), 0),
      readers_(architecture.calls().size(), 0),
      last_readers_(architecture.calls().size(), -1) {
  for (std::size_t call = 0; call < readers_.size(); ++call) {
    const LayerCall& its = architecture.calls()[call];
    ++calls_[its.layer];
    for (const int input : its.inputs) {
      ++readers_[input];
      last_readers_[input] = static_cast<int>(call);
    }
    if (is_penalized(architecture.layers()[its.layer])) ++readers_[call];
  }
  for (const int output : architecture.outputs()) ++readers_[output];
}

}  // namespace lockstep
