// See layouts.hpp.
#include "backend/cpu/layouts.hpp"

#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/tensor_descriptor.hpp"

#include <cstdint>

namespace lockstep {

namespace {

/// Gives the output the blocked layout that the convolution prefers. Returns false if it prefers a plain one.
bool choose_output_blocks(const onednn::Context& context, Graph& graph, const Operation& operation,
                          std::size_t num_examples) {
  const TensorSpec& input = graph.tensors[operation.input];
  TensorSpec& output = graph.tensors[operation.output];
  output.blocked = true;
  const auto chosen =
      describe_forward(context, graph, operation, num_examples, source_for_layout_query(input, output, num_examples),
                       descriptor_of_any_layout(convolution_output_of(graph, operation), num_examples));
  for (const std::int64_t block : {16, 8}) {
    if (output.channels % block != 0) continue;
    output.block = block;
    if (chosen.dst_desc() == descriptor_of(convolution_output_of(graph, operation), num_examples)) return true;
  }
  return false;
}

/// Gives a model's input of several channels the layout that the first convolution prefers.
void choose_input_layout(const onednn::Context& context, Graph& graph, const Operation& operation,
                         std::size_t num_examples) {
  TensorSpec& input = graph.tensors[operation.input];
  const TensorSpec& output = graph.tensors[operation.output];
  const auto chosen =
      describe_forward(context, graph, operation, num_examples, descriptor_of_any_layout(input, num_examples),
                       descriptor_of_any_layout(output, num_examples));
  input.block = 1;
  if (chosen.src_desc() != descriptor_of(input, num_examples)) input.block = input.channels;
}

/// Gives a tensor that an all-to-all unpacks blocks of 16 or 8 channels, if they divide its number of channels.
void choose_blocks_of_slice(TensorSpec& slice) {
  for (const std::int64_t block : {8, 16}) {
    if (slice.channels % block != 0 || slice.channels == 0) continue;
    slice.block = block;
    slice.blocked = true;
  }
}

/// Returns false if some convolution does not support blocks.
bool choose_blocks(const onednn::Context& context, Graph& graph, std::size_t num_examples) {
  for (const TensorSpec& tensor : graph.tensors) {
    const bool spatial = tensor.height * tensor.width > 1;
    if (spatial && (tensor.requires_channels_last || tensor.alias >= 0)) return false;
  }
  int unpacked = -1;
  for (const Operation& operation : graph.forward) {
    if (operation.kind == OperationKind::unpack_all_to_all) unpacked = operation.output;
    if (operation.kind == OperationKind::convolution) {
      if (operation.input == unpacked) choose_blocks_of_slice(graph.tensors[unpacked]);
      const auto is_empty = [&](int tensor) { return graph.tensors[tensor].elements() == 0; };
      if (is_empty(operation.input) || is_empty(operation.output)) continue;  // no channels on this rank
      if (operation.input == 0 && graph.tensors[0].channels > 1)
        choose_input_layout(context, graph, operation, num_examples);
      if (!choose_output_blocks(context, graph, operation, num_examples)) return false;
    } else if (operation.output > 0 && operation.input >= 0 && operation.kind != OperationKind::dense) {
      graph.tensors[operation.output].block = graph.tensors[operation.input].block;
      graph.tensors[operation.output].blocked = graph.tensors[operation.input].blocked;
    }
  }
  return true;
}

}  // namespace

void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t num_examples) {
  if (graph.plain || !choose_blocks(context, graph, num_examples)) {
    for (TensorSpec& tensor : graph.tensors) {
      tensor.block = tensor.channels;
      tensor.blocked = false;
    }
  }
}

}  // namespace lockstep
