// See layouts.hpp.
#include "backend/cpu/layouts.hpp"

#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/tensor_descriptor.hpp"

#include <cstdint>

namespace lockstep {

namespace {

/// What a convolution would like to write, if that is blocks.
bool choose_output_blocks(const onednn::Context& context, Graph& graph, const Operation& operation, std::size_t rows) {
  const TensorSpec& input = graph.tensors[operation.input];
  TensorSpec& output = graph.tensors[operation.output];
  output.blocked = true;
  const auto chosen = describe_forward(context, graph, operation, rows, source_for_choice(input, output, rows),
                                       descriptor_of_any_layout(result_of(graph, operation), rows));
  for (const std::int64_t block : {16, 8}) {
    if (output.channels % block != 0) continue;
    output.block = block;
    if (chosen.dst_desc() == descriptor_of(result_of(graph, operation), rows)) return true;
  }
  return false;
}

/// A model's input of several channels lies as its first convolution likes it.
void choose_input_layout(const onednn::Context& context, Graph& graph, const Operation& operation, std::size_t rows) {
  TensorSpec& input = graph.tensors[operation.input];
  const TensorSpec& output = graph.tensors[operation.output];
  const auto chosen = describe_forward(context, graph, operation, rows, descriptor_of_any_layout(input, rows),
                                       descriptor_of_any_layout(output, rows));
  input.block = 1;
  if (chosen.src_desc() != descriptor_of(input, rows)) input.block = input.channels;
}

/// What ranks hand each other lies as its convolution likes it: in blocks, if there are so many channels.
void choose_blocks_of_slice(TensorSpec& slice) {
  for (const std::int64_t block : {8, 16}) {
    if (slice.channels % block != 0 || slice.channels == 0) continue;
    slice.block = block;
    slice.blocked = true;
  }
}

/// False where some convolution cannot have blocks.
bool choose_blocks(const onednn::Context& context, Graph& graph, std::size_t rows) {
  for (const TensorSpec& tensor : graph.tensors) {
    const bool spatial = tensor.height * tensor.width > 1;
    if (spatial && (tensor.keras_order || tensor.alias >= 0)) return false;
  }
  int unpacked = -1;
  for (const Operation& operation : graph.forward) {
    if (operation.kind == OperationKind::unpack) unpacked = operation.output;
    if (operation.kind == OperationKind::convolution) {
      if (operation.input == unpacked) choose_blocks_of_slice(graph.tensors[unpacked]);
      const auto is_empty = [&](int tensor) { return graph.tensors[tensor].elements() == 0; };
      if (is_empty(operation.input) || is_empty(operation.output)) continue;  // of a divided layer, nothing is its own
      if (operation.input == 0 && graph.tensors[0].channels > 1) choose_input_layout(context, graph, operation, rows);
      if (!choose_output_blocks(context, graph, operation, rows)) return false;
    } else if (operation.output > 0 && operation.input >= 0 && operation.kind != OperationKind::dense) {
      graph.tensors[operation.output].block = graph.tensors[operation.input].block;
      graph.tensors[operation.output].blocked = graph.tensors[operation.input].blocked;
    }
  }
  return true;
}

}  // namespace

void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t rows) {
  if (graph.plain || !choose_blocks(context, graph, rows)) {
    for (TensorSpec& tensor : graph.tensors) {
      tensor.block = tensor.channels;
      tensor.blocked = false;
    }
  }
}

}  // namespace lockstep
