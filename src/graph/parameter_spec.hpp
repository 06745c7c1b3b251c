// A variable of a graph and its place in the arenas.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <string>

namespace lockstep {

/// How an update uses a parameter's reduced gradient.
enum class UpdateRule {
  optimizer,       ///< a trainable weight
  moving_average,  ///< BatchNormalization's statistics: the "gradient" is the step's statistic, averaged over replicas
  frozen,          ///< none: a weight of a layer that is not trainable, in the arena of weights alone
  assign,          ///< the step's metric sums and partial sums: the reduced value replaces the old one
};

/// A parameter has the same offset in the arenas of weights, gradients and each optimizer slot. Frozen ones come after
/// the others, where only the arena of weights has elements.
struct ParameterSpec {
  std::string name;  ///< "conv2d/kernel"
  ParameterInfo info;
  std::size_t storage = 0;  ///< elements in the backend's layout, padding included
  std::size_t offset = 0;   ///< first element in the arenas; a multiple of 16
  UpdateRule rule = UpdateRule::optimizer;
  float momentum = 0;       ///< of a moving average
  bool is_local = false;    ///< in this rank's local arenas: a shard of a variable, or a replicated variable
  bool is_sharded = false;  ///< local, and other ranks hold the other shards

  /// Whether a constraint changes the variable after each update. Then one rank of a host updates all of it, because a
  /// norm depends on elements that shards would separate.
  [[nodiscard]] bool is_constrained() const { return rule == UpdateRule::optimizer && !info.constraint.is_none(); }
};

}  // namespace lockstep
