// See plan.hpp. What a plan says about itself; make_plan.cpp makes it.
#include "plan/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {

namespace {

std::string extents(const TensorSpec& tensor) {
  return std::to_string(tensor.height) + "x" + std::to_string(tensor.width) + "x" + std::to_string(tensor.channels) +
         (tensor.block == tensor.channels ? "" : " in blocks of " + std::to_string(tensor.block)) +
         (tensor.type == ElementType::bfloat16 ? " bfloat16" : " float32");
}

std::string line_of(const Operation& operation, const Graph& graph) {
  std::string line(name_of(operation.kind));
  if (operation.layer >= 0) line += " " + graph.layers[operation.layer].name;
  if (operation.input >= 0) line += " t" + std::to_string(operation.input);
  if (operation.output >= 0) line += " -> t" + std::to_string(operation.output);
  if (operation.kind == OperationKind::dense_backward) {
    line += " rows " + std::to_string(operation.rows_begin) + ".." + std::to_string(operation.rows_end);
  }
  if (operation.activation != ActivationFunction::linear) line += " " + std::string(name_of(operation.activation));
  if (operation.input_gradient) {
    line += " (input gradient";
    if (operation.input_activation != ActivationFunction::linear) {
      line += " through " + std::string(name_of(operation.input_activation));
    }
    line += ")";
  }
  if (operation.slices > 1)
    line += " slice " + std::to_string(operation.slice) + "/" + std::to_string(operation.slices);
  if (operation.by_examples) line += " by examples";
  if (operation.exchange >= 0) line += " exchange " + std::to_string(operation.exchange);
  if (operation.sum >= 0) line += " summed in " + graph.parameters[operation.sum].name;
  if (operation.bucket >= 0) line += " bucket " + std::to_string(operation.bucket);
  return line;
}

/// `common`: what the ranks of a divided model have in common, instead of this rank's.
std::string layout_of(const Plan& plan, bool common = false) {
  const Graph& graph = plan.graph;
  std::ostringstream input;
  input << std::setprecision(17) << "input bytes * " << graph.input.byte_scale << ", * " << graph.input.scale << " + "
        << graph.input.offset << '\n';
  std::string text = input.str() + plan.division;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (common && graph.tensors[t].whole_channels > 0) continue;
    text += "tensor t" + std::to_string(t) + " " + graph.tensors[t].name + " " + extents(graph.tensors[t]) + "\n";
  }
  for (const ParameterSpec& parameter : graph.parameters) {
    if (common && parameter.own) continue;
    text += "parameter " + parameter.name + " " + parameter.info.shape.to_string() + " at " +
            std::to_string(parameter.offset) + ", " + std::to_string(parameter.storage) + " elements" +
            (parameter.own ? " of its own\n" : "\n");
  }
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    text += "bucket " + std::to_string(b) + " [" + std::to_string(plan.buckets[b].begin) + ", " +
            std::to_string(plan.buckets[b].end) + ")\n";
  }
  return text;
}

}  // namespace

std::string Plan::to_string() const {
  std::string text = layout_of(*this);
  for (const Operation& operation : training) text += line_of(operation, graph) + "\n";
  return text;
}

std::string Plan::digest() const {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : layout_of(*this, !division.empty()))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, hash >>= 4U) {
    *digit = "0123456789abcdef"[hash & 15U];
  }
  return digits;
}

std::vector<std::size_t> Plan::operations_of_step(bool sums_metrics) const {
  const auto sums_them = [this](const Operation& operation) {
    const OperationKind kind = operation.kind;
    return (kind == OperationKind::contribute || kind == OperationKind::update || kind == OperationKind::await) &&
           static_cast<std::size_t>(operation.bucket) == metrics_bucket;
  };
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < training.size(); ++i) {
    if (sums_metrics || !sums_them(training[i])) places.push_back(i);
  }
  return places;
}

std::vector<BucketRange> Plan::sums_that_are_no_gradients() const {
  std::vector<BucketRange> ranges;
  for (const ParameterSpec& parameter : graph.parameters) {
    if (parameter.own || parameter.rule == UpdateRule::optimizer) continue;
    ranges.push_back({parameter.offset, parameter.offset + elements_in_arena(parameter)});
  }
  return ranges;
}

std::size_t elements_in_arena(const ParameterSpec& parameter) {
  return (parameter.storage + line_elements - 1) / line_elements * line_elements;
}

}  // namespace lockstep
