// Lowering: from layers to operations on tensors.
#pragma once

#include "graph/graph.hpp"

#include <lockstep/training/compile_options.hpp>

#include <optional>
#include <vector>

namespace lockstep {

/// Lowers a model: fuses activations into the operation before them and a first Rescaling into gather, removes Reshape
/// and Flatten, and appends the backward operations. Layouts are chosen later (Backend::lay_out). Byte inputs are
/// multiplied by `input_scale`; without it by byte_scale_of(). Throws UsageError if the loss or a metric does not fit
/// the output, or if `precision` is automatic and layers of both precisions alternate.
[[nodiscard]] Graph lower(const Architecture& architecture, const CompileOptions& options, Precision precision,
                          std::optional<double> input_scale = {});

/// The same for a model of one output.
[[nodiscard]] Graph lower(const Architecture& architecture, const Loss& loss, Precision precision,
                          std::optional<double> input_scale = {}, std::vector<Metric> metrics = {},
                          std::vector<Metric> weighted_metrics = {});

}  // namespace lockstep
