// See convolution_costs.hpp.
#include "backend/cpu/convolution_costs.hpp"

#include "backend/cpu/depthwise.hpp"
#include "backend/cpu/few_channels.hpp"
#include "backend/cpu/winograd/convolution.hpp"
#include "graph/work.hpp"

#include <algorithm>
#include <string>
#include <tuple>

namespace lockstep {

namespace {

/// Reference code, in nanoseconds per multiply-add: chosen only if there is nothing else.
constexpr double reference_cost = 30;

using Algorithm = ConvolutionAlgorithm;
using Pass = ConvolutionPass;

Algorithm& algorithm_of(ConvolutionChoice& choice, Pass pass) {
  if (pass == Pass::forward) return choice.forward;
  return pass == Pass::data ? choice.data : choice.weights;
}

/// The pass of an ordinary convolution that computes a pass of this one.
Pass computed_by(const Operation& operation, Pass pass) {
  if (!operation.is_transposed || pass == Pass::weights) return pass;
  return pass == Pass::forward ? Pass::data : Pass::forward;
}

double rate_of(const ConvolutionRow& row, const Operation& operation, Pass pass) {
  const Pass computing = computed_by(operation, pass);
  if (computing == Pass::forward) return row.forward_rate;
  return computing == Pass::data ? row.data_rate : row.weights_rate;
}

/// A row's layouts as those of the operation's input and output.
std::pair<Layout, Layout> layouts_of(const ConvolutionRow& row, const Operation& operation) {
  return operation.is_transposed ? std::pair(row.output, row.input) : std::pair(row.input, row.output);
}

/// oneDNN's reference code and, for depthwise convolutions, its kernels for groups: a product for every channel.
bool is_slow(const std::string& implementation, ConvolutionKind kind) {
  const bool is_for_groups = kind == ConvolutionKind::depthwise && implementation.find("dw") == std::string::npos;
  return implementation.starts_with("ref") || is_for_groups;
}

/// The row of each algorithm and pair of layouts that holds for this instruction set.
std::vector<ConvolutionRow> rows_for(const KernelOptions& options, ElementType type, ConvolutionKind kind) {
  std::vector<ConvolutionRow> rows;
  for (const ConvolutionRow& row : convolution_table()) {
    if (row.algorithm == Algorithm::winograd && options.convolutions == Convolutions::direct) continue;
    if (row.from > options.set || row.type != type || row.kind != kind) continue;
    const auto same = std::ranges::find_if(rows, [&](const ConvolutionRow& other) {
      return other.algorithm == row.algorithm && other.input == row.input && other.output == row.output;
    });
    if (same == rows.end()) {
      rows.push_back(row);
    } else {
      *same = row;
    }
  }
  return rows;
}

bool needs_data_gradient(const Graph& graph, const Operation& forward) {
  return std::ranges::any_of(graph.backward, [&](const Operation& operation) {
    return operation.kind == OperationKind::convolution_backward && operation.output == forward.output &&
           operation.input_gradient;
  });
}

bool is_same_memory(TensorSpec tensor, Layout a, Layout b) {
  if (a == b) return true;
  tensor.layout = a;
  const bool is_a_last = tensor.is_channels_last();
  tensor.layout = b;
  return is_a_last && tensor.is_channels_last();
}

}  // namespace

ConvolutionCosts::ConvolutionCosts(const onednn::Context& context, const Graph& graph, const Operation& operation,
                                   std::size_t num_examples, const KernelOptions& options)
    : problem_{context, graph, operation, num_examples, {}},
      input_(graph.tensors[operation.input]),
      output_(graph.tensors[operation.output]),
      work_(static_cast<double>(num_examples) * multiply_adds_per_example(graph, operation)),
      has_data_gradient_(needs_data_gradient(graph, operation)),
      forced_(options.forced),
      forces_winograd_(options.convolutions == Convolutions::winograd),
      rows_(rows_for(options, input_.type, kind_of(graph, operation))) {
  for (const ConvolutionRow& row : rows_) add_candidate(layouts_of(row, operation));
  if (std::ranges::all_of(candidates_, &Candidate::needs_tensor_layouts)) add_reference();
}

std::pair<double, ConvolutionChoice> ConvolutionCosts::best(Layout input, Layout output) const {
  std::pair<double, ConvolutionChoice> found{impossible_cost, {}};
  bool is_forced = false;
  for (const Candidate& candidate : candidates_) {
    const bool converts_input = !is_same_memory(input_, input, candidate.choice.input);
    const bool converts_output = !is_same_memory(output_, output, candidate.choice.output);
    if (candidate.needs_tensor_layouts && (converts_input || converts_output)) continue;
    double cost = candidate.cost;
    // Forward and the weight gradient read the input; the data gradient writes its gradient.
    if (converts_input) cost += (has_data_gradient_ ? 3 : 2) * conversion_cost(input_);
    if (converts_output) cost += 2 * conversion_cost(output_);
    const bool has_forced = forced_ && candidate.choice.output == *forced_;
    const bool is_better = has_forced == is_forced ? cost < found.first : has_forced;
    if (is_better) found = {cost, candidate.choice};
    is_forced = is_forced || has_forced;
  }
  return found;
}

/// Adds the fastest kernels that read and write these layouts, if there are some for every pass.
void ConvolutionCosts::add_candidate(const std::pair<Layout, Layout>& kernel_layouts) {
  const auto [input, output] = kernel_layouts;
  if (!fits(input, input_.channels) || !fits(output, output_.channels)) return;
  const bool is_known = std::ranges::any_of(candidates_, [&](const Candidate& candidate) {
    return std::pair(candidate.choice.input, candidate.choice.output) == kernel_layouts;
  });
  if (is_known) return;
  Candidate candidate{.choice = {.input = input, .output = output}, .needs_tensor_layouts = false};
  for (const Pass pass : {Pass::forward, Pass::data, Pass::weights}) {
    if (pass == Pass::data && !has_data_gradient_) continue;
    double rate = 0;
    for (const ConvolutionRow& row : rows_) {
      const double its_rate = rate_of(row, problem_.operation, pass);
      const bool is_offered =
          layouts_of(row, problem_.operation) == kernel_layouts && row.algorithm != Algorithm::winograd;
      if (!is_offered || its_rate <= rate || !is_supported(row, pass)) continue;
      rate = its_rate;
      algorithm_of(candidate.choice, pass) = row.algorithm;
    }
    if (rate == 0) return;
    candidate.cost += work_ / rate;
  }
  candidate.needs_tensor_layouts =
      reads_tensors_as_they_are(candidate.choice.forward) || reads_tensors_as_they_are(candidate.choice.weights);
  use_winograd_if_faster(candidate);
  candidates_.push_back(candidate);
}

/// Our own Winograd computes all passes or none.
void ConvolutionCosts::use_winograd_if_faster(Candidate& candidate) const {
  ConvolutionProblem problem = problem_;
  problem.choice = {.forward = Algorithm::winograd,
                    .data = has_data_gradient_ ? Algorithm::winograd : Algorithm::unspecified,
                    .weights = Algorithm::winograd,
                    .input = candidate.choice.input,
                    .output = candidate.choice.output};
  for (const ConvolutionRow& row : rows_) {
    const bool is_its = row.algorithm == Algorithm::winograd && row.input == problem.choice.input;
    if (!is_its || !supports_winograd(problem)) continue;
    const double work = winograd_work(problem_.graph, problem_.operation, problem_.num_examples);
    const double cost =
        work / row.forward_rate + work / row.weights_rate + (has_data_gradient_ ? work / row.data_rate : 0);
    if (forces_winograd_ || cost < candidate.cost)
      candidate = {.cost = forces_winograd_ ? 0 : cost, .choice = problem.choice};
  }
}

void ConvolutionCosts::add_reference() {
  constexpr auto direct = Algorithm::direct_nhwc;
  candidates_.push_back({work_ * reference_cost, {.forward = direct, .data = direct, .weights = direct}, false});
}

bool ConvolutionCosts::is_supported(const ConvolutionRow& row, Pass pass) const {
  const Operation& operation = problem_.operation;
  if (row.algorithm == Algorithm::direct_few_channels)
    return problem_.graph.is_input(operation.input) && operation.shared.count == 1 && !operation.is_transposed &&
           supports_few_channels(input_, output_);
  if (row.algorithm == Algorithm::direct_depthwise)
    return operation.shared.count == 1 && supports_depthwise_weights(input_, output_);
  ConvolutionProblem problem = problem_;
  std::tie(problem.choice.input, problem.choice.output) = layouts_of(row, operation);
  try {
    const Pass computing = computed_by(operation, pass);
    if (computing == Pass::forward) return !is_slow(describe_forward(problem).impl_info_str(), row.kind);
    if (computing == Pass::data) return !is_slow(describe_backward_data(problem).impl_info_str(), row.kind);
    return !is_slow(describe_backward_weights(problem).impl_info_str(), row.kind);
  } catch (const dnnl::error&) {  // not implemented
    return false;
  }
}

double ConvolutionCosts::conversion_cost(const TensorSpec& tensor) const {
  return 2 * static_cast<double>(problem_.num_examples) * static_cast<double>(tensor.elements()) *
         static_cast<double>(size_of(tensor.type)) / conversion_rate;
}

double expected_nanoseconds(const Graph& graph, std::size_t num_examples, InstructionSet set) {
  double nanoseconds = 0;
  for (const Operation& operation : graph.forward) {
    if (!traits_of(operation).has_kernel || operation.input < 0) continue;
    const TensorSpec& input = graph.tensors[operation.input];
    const double work = static_cast<double>(num_examples) * multiply_adds_per_example(graph, operation);
    const bool has_data_gradient = !graph.is_input(operation.input);
    if (operation.kind != OperationKind::convolution) {
      nanoseconds += (has_data_gradient ? 3 : 2) * work / product_rate(set, input.type);
      continue;
    }
    const ConvolutionChoice& choice = operation.convolution;
    const double scaled = choice.forward == Algorithm::winograd ? winograd_work(graph, operation, num_examples) : work;
    for (const ConvolutionRow& row : rows_for({.set = set}, input.type, kind_of(graph, operation))) {
      if (layouts_of(row, operation) != std::pair(choice.input, choice.output)) continue;
      if (row.algorithm == choice.forward) nanoseconds += scaled / rate_of(row, operation, Pass::forward);
      if (has_data_gradient && row.algorithm == choice.data)
        nanoseconds += scaled / rate_of(row, operation, Pass::data);
      if (row.algorithm == choice.weights) nanoseconds += scaled / rate_of(row, operation, Pass::weights);
    }
  }
  return nanoseconds;
}

}  // namespace lockstep
