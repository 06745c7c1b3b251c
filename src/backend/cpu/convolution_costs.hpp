// What the algorithms of a convolution cost, by the table of convolutions.
#pragma once

#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/convolution_table.hpp"
#include "backend/cpu/instruction_set.hpp"
#include "backend/cpu/onednn.hpp"
#include "graph/graph.hpp"

#include <lockstep/core/convolutions.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

/// What kernels may be chosen.
struct KernelOptions {
  InstructionSet set = InstructionSet::baseline;
  /// Use this layout, and kernels of it, wherever it divides the channels and there is such a kernel.
  std::optional<Layout> forced = {};
  Convolutions convolutions = Convolutions::automatic;
};

inline constexpr double impossible_cost = std::numeric_limits<double>::infinity();

enum class ConvolutionPass { forward, data, weights };

/// The algorithms of one convolution and their costs, in nanoseconds of a training step.
class ConvolutionCosts {
 public:
  ConvolutionCosts(const onednn::Context& context, const Graph& graph, const Operation& operation,
                   std::size_t num_examples, const KernelOptions& options);

  /// The cheapest kernels between tensors of these layouts, conversions included. `impossible_cost` if there are none.
  [[nodiscard]] std::pair<double, ConvolutionChoice> best(Layout input, Layout output) const;

 private:
  struct Candidate {
    double cost = 0;
    ConvolutionChoice choice;
    bool needs_tensor_layouts =
        false;  ///< reads and writes the tensors themselves, so their layouts must be those of `choice`
  };

  void add_candidate(const std::pair<Layout, Layout>& kernel_layouts);
  void use_winograd_if_faster(Candidate& candidate) const;
  void add_reference();
  [[nodiscard]] bool is_supported(const ConvolutionRow& row, ConvolutionPass pass) const;
  [[nodiscard]] double conversion_cost(const TensorSpec& tensor) const;

  ConvolutionProblem problem_;
  const TensorSpec& input_;
  const TensorSpec& output_;
  double work_;
  bool has_data_gradient_;
  std::optional<Layout> forced_;
  bool forces_winograd_;
  std::vector<ConvolutionRow> rows_;
  std::vector<Candidate> candidates_;
};

/// The nanoseconds that the table expects of a training step's convolutions and products for `num_examples` examples on
/// one core, with the algorithms chosen by choose_layouts.
[[nodiscard]] double expected_nanoseconds(const Graph& graph, std::size_t num_examples, InstructionSet set);

}  // namespace lockstep
