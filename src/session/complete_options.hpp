// Compile options as a model uses them.
#pragma once

#include "graph/output_options.hpp"

#include <lockstep/layers/architecture.hpp>
#include <lockstep/training/compile_options.hpp>

#include <span>
#include <string>

namespace lockstep {

/// Checks the options, and sets what depends on the outputs: of a model with several, CompileOptions::outputs has all
/// in the model's order then; of a model with one, it is empty. Throws UsageError.
void complete(CompileOptions& options, const Architecture& architecture);

/// Lets all losses and metrics of complete options clip probabilities (--clip-probabilities).
void clip_probabilities(CompileOptions& options);

/// Which losses and metrics clip probabilities, which Keras' configs do not say: "010"; empty if none does.
[[nodiscard]] std::string describe_clipping(std::span<const OutputOptions> outputs);

}  // namespace lockstep
