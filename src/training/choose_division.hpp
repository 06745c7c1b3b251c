// Whether, and how, a run divides a model by features.
#pragma once

#include "plan/division.hpp"
#include "training/runtime.hpp"

#include <optional>

namespace lockstep {

/// What --division says, of a model that is lowered but not laid out: a division by features, or none, which is by
/// examples. The same on all ranks; collective. Throws UsageError where features are asked for and cannot be had.
[[nodiscard]] std::optional<FeatureDivision> choose_division(Runtime& runtime, const Graph& graph);

}  // namespace lockstep
