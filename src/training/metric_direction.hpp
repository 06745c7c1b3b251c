// Which way a logged value improves, for callbacks and for an evaluator.
#pragma once

#include <lockstep/training/compile_options.hpp>

#include <optional>
#include <string_view>

namespace lockstep {

/// Whether a larger value of this name in the logs is a better one: as of the metric that the model is compiled with,
/// else as of Keras' metric of this name; of others, yes if the name contains "acc", no if it contains "loss". None if
/// the name does not tell.
[[nodiscard]] std::optional<bool> is_upward_log(const std::optional<CompileOptions>& compiled, std::string_view name);

}  // namespace lockstep
