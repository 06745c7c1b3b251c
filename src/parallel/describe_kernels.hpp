// Formats the kernels of a plan for a person: `lockstep plan --kernels`, and --verbose 2.
#pragma once

#include "parallel/measure_kernels.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// A table with a line for each operation: layer, layouts, examples of a call, implementation, milliseconds of a step.
[[nodiscard]] std::string describe_kernels(const Plan& plan, const std::vector<MeasuredOperation>& operations,
                                           std::size_t num_examples);

}  // namespace lockstep
