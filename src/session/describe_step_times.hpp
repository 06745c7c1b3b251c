// Formats the predicted step times of a model for `lockstep plan`.
#pragma once

#include "session/run_context.hpp"

#include <lockstep/training/model.hpp>

#include <cstddef>
#include <string>

namespace lockstep {

/// See Model::estimate_step_time.
[[nodiscard]] std::string describe_step_times(const RunContext& run_context, const Architecture& architecture,
                                              const CompileOptions& compile_options, std::size_t batch,
                                              const NetworkOptions& options);

}  // namespace lockstep
