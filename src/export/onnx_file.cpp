// See onnx_file.hpp. The only file that includes libonnx.
#include "export/onnx_file.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/overloaded.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// The version of the format that came with a version of the operators.
int ir_version_of(int opset) {
  if (opset >= 21) return 10;
  return opset >= 19 ? 9 : 8;
}

void write_port(const OnnxPort& port, onnx::ValueInfoProto& info) {
  info.set_name(port.name);
  onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(static_cast<int>(port.type));
  tensor.mutable_shape()->add_dim()->set_dim_param("batch");
  for (const std::int64_t extent : port.dims) tensor.mutable_shape()->add_dim()->set_dim_value(extent);
}

void write_constant(const OnnxConstant& constant, onnx::TensorProto& tensor) {
  tensor.set_name(constant.name);
  for (const std::int64_t extent : constant.dims) tensor.add_dims(extent);
  std::visit(
      [&]<typename Number>(const std::vector<Number>& values) {
        tensor.set_data_type(std::is_same_v<Number, float> ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64);
        tensor.set_raw_data(values.data(), values.size() * sizeof(Number));  // little-endian, as this machine
      },
      constant.values);
}

void write_attribute(const OnnxAttribute& attribute, onnx::AttributeProto& proto) {
  proto.set_name(attribute.name);
  std::visit(Overloaded{[&](std::int64_t value) {
                          proto.set_type(onnx::AttributeProto::INT);
                          proto.set_i(value);
                        },
                        [&](float value) {
                          proto.set_type(onnx::AttributeProto::FLOAT);
                          proto.set_f(value);
                        },
                        [&](const std::string& value) {
                          proto.set_type(onnx::AttributeProto::STRING);
                          proto.set_s(value);
                        },
                        [&](const std::vector<std::int64_t>& values) {
                          proto.set_type(onnx::AttributeProto::INTS);
                          for (const std::int64_t value : values) proto.add_ints(value);
                        }},
             attribute.value);
}

void write_node(const OnnxNode& node, onnx::NodeProto& proto) {
  proto.set_op_type(node.op_type);
  proto.set_name(node.name);
  for (const std::string& input : node.inputs) proto.add_input(input);
  proto.add_output(node.output);
  for (const OnnxAttribute& attribute : node.attributes) write_attribute(attribute, *proto.add_attribute());
}

}  // namespace

void require_onnx() {}

void write_onnx(const std::filesystem::path& file, const OnnxGraph& graph) {
  onnx::ModelProto model;
  model.set_ir_version(ir_version_of(graph.opset));
  model.set_producer_name("lockstep");
  model.set_producer_version(LOCKSTEP_VERSION);
  model.add_opset_import()->set_version(graph.opset);
  onnx::GraphProto& proto = *model.mutable_graph();
  proto.set_name(graph.name);
  for (const OnnxPort& port : graph.inputs) write_port(port, *proto.add_input());
  for (const OnnxPort& port : graph.outputs) write_port(port, *proto.add_output());
  for (const OnnxConstant& constant : graph.constants) write_constant(constant, *proto.add_initializer());
  for (const OnnxNode& node : graph.nodes) write_node(node, *proto.add_node());
  const std::size_t size = model.ByteSizeLong();
  if (size > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw DataError(fmt::format("the model takes {} bytes, but one file of ONNX holds at most 2 GiB", size));
  }
  std::vector<std::byte> bytes(size);
  if (!model.SerializeToArray(bytes.data(), static_cast<int>(size)))
    throw InternalError("libonnx cannot write the model; please report this");
  write_file_atomically(file, bytes, WriteGuard());
}

}  // namespace lockstep
