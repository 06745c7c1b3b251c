// Chooses the layout of every tensor and the algorithm of every convolution.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/instruction_set.hpp"
#include "backend/cpu/onednn.hpp"

#include <lockstep/core/convolutions.hpp>

#include <cstddef>
#include <optional>

namespace lockstep {

/// What kernels may be chosen.
struct KernelOptions {
  InstructionSet set = InstructionSet::baseline;
  /// Use this layout, and kernels of it, wherever it divides the channels and there is such a kernel.
  std::optional<Layout> forced = {};
  Convolutions convolutions = Convolutions::automatic;
};

/// Chooses what costs least by the table of convolutions, conversions between unlike layouts included. Operations
/// without a kernel write the layout that they read.
void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t num_examples,
                    const KernelOptions& options);

/// The nanoseconds that the table expects of a training step's convolutions and products for `num_examples` examples on
/// one core, with the algorithms chosen by choose_layouts.
[[nodiscard]] double expected_nanoseconds(const Graph& graph, std::size_t num_examples, InstructionSet set);

}  // namespace lockstep
