// How each output of a model is trained: the compile options of one output and of several, in one form.
#pragma once

#include <lockstep/layers/architecture.hpp>
#include <lockstep/training/compile_options.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

/// One for each output, in the model's order and with its name; metrics have the defaults that depend on the number of
/// an output's elements. Throws UsageError for outputs that the model lacks or that are missing, and for metrics of a
/// whole model that has several outputs.
[[nodiscard]] std::vector<OutputOptions> output_options(const CompileOptions& options, const Architecture& model);

/// Of the last layer before the output that has an activation. Of what a layer merges, the first tensor counts.
[[nodiscard]] ActivationFunction last_activation(const Architecture& model, std::size_t output);

}  // namespace lockstep
