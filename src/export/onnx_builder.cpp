// See onnx_builder.hpp.
#include "export/onnx_builder.hpp"

#include <algorithm>
#include <span>

namespace lockstep {

std::int64_t OnnxValue::onnx_axis(std::size_t axis) const {
  if (!channels_first) return static_cast<std::int64_t>(axis) + 1;
  return axis + 1 == shape.rank() ? 1 : static_cast<std::int64_t>(axis) + 2;
}

std::vector<float> permuted(const std::vector<float>& values, const Shape& shape, const AxisOrder& order) {
  const std::size_t rank = order.size();
  std::vector<std::size_t> strides(rank, 1);
  for (std::size_t axis = rank; axis-- > 1;) strides[axis - 1] = strides[axis] * static_cast<std::size_t>(shape[axis]);
  std::vector<float> result;
  result.reserve(values.size());
  std::vector<std::int64_t> index(rank, 0);
  std::size_t offset = 0;
  while (result.size() < values.size()) {
    result.push_back(values[offset]);
    for (std::size_t i = rank; i-- > 0;) {
      offset += strides[order[i]];
      if (++index[i] < shape[order[i]]) break;
      offset -= strides[order[i]] * static_cast<std::size_t>(index[i]);
      index[i] = 0;
    }
  }
  return result;
}

OnnxBuilder::OnnxBuilder(std::string name, int opset) {
  graph_.name = std::move(name);
  graph_.opset = opset;
}

OnnxValue OnnxBuilder::add_input(const std::string& name, const Shape& shape, OnnxType type) {
  names_.insert(name);
  graph_.inputs.push_back({.name = name, .type = type, .dims = {shape.extents().begin(), shape.extents().end()}});
  return {.name = name, .shape = shape, .type = type};
}

void OnnxBuilder::add_output(const OnnxValue& value, const std::string& name) {
  OnnxValue last = channels_last(value);
  if (const auto found = renamed_.find(last.name); found != renamed_.end()) last.name = found->second;
  const auto producer = std::ranges::find(graph_.nodes, last.name, &OnnxNode::output);
  const bool is_taken = std::ranges::find(graph_.outputs, last.name, &OnnxPort::name) != graph_.outputs.end();
  std::string port = name;
  if (std::ranges::find(graph_.inputs, name, &OnnxPort::name) != graph_.inputs.end()) port = unique(name);
  if (producer == graph_.nodes.end() || is_taken) {
    graph_.nodes.push_back({.op_type = "Identity", .name = port, .inputs = {last.name}, .output = port});
  } else {
    producer->output = port;
    for (OnnxNode& node : graph_.nodes) std::ranges::replace(node.inputs, last.name, port);
    for (auto& [from, to] : transposed_) {
      if (to == last.name) to = port;
    }
    renamed_[last.name] = port;
  }
  const std::span<const std::int64_t> extents = last.shape.extents();
  graph_.outputs.push_back({.name = port, .type = last.type, .dims = {extents.begin(), extents.end()}});
}

OnnxValue OnnxBuilder::add(const std::string& op_type, std::vector<std::string> inputs, const Shape& shape,
                           const OnnxValue& like, std::vector<OnnxAttribute> attributes) {
  OnnxValue output{.name = unique(layer_ + "/" + op_type), .shape = shape, .channels_first = like.channels_first};
  graph_.nodes.push_back({.op_type = op_type,
                          .name = output.name,
                          .inputs = std::move(inputs),
                          .output = output.name,
                          .attributes = std::move(attributes)});
  return output;
}

OnnxValue OnnxBuilder::add(const std::string& op_type, const OnnxValue& input, std::vector<std::string> constants,
                           std::vector<OnnxAttribute> attributes) {
  constants.insert(constants.begin(), input.name);
  return add(op_type, std::move(constants), input.shape, input, std::move(attributes));
}

OnnxValue OnnxBuilder::reduce(const std::string& op_type, const OnnxValue& input, std::vector<std::int64_t> axes,
                              const Shape& shape, bool keepdims) {
  std::vector<std::string> inputs{input.name};
  std::vector<OnnxAttribute> attributes{{"keepdims", std::int64_t{keepdims ? 1 : 0}}};
  constexpr int axes_are_an_input = 18;  // of ReduceSum since 13
  if (op_type == "ReduceSum" || opset() >= axes_are_an_input) {
    inputs.push_back(integers(axes));
  } else {
    attributes.push_back({"axes", std::move(axes)});
  }
  return add(op_type, std::move(inputs), shape, input, std::move(attributes));
}

OnnxValue OnnxBuilder::channels_last(const OnnxValue& value) {
  return value.channels_first ? transposed(value) : value;
}

OnnxValue OnnxBuilder::channels_first(const OnnxValue& value) {
  return value.channels_first || value.shape.rank() < 2 ? value : transposed(value);
}

OnnxValue OnnxBuilder::transposed(const OnnxValue& value) {
  OnnxValue other = value;
  other.channels_first = !value.channels_first;
  if (const auto found = transposed_.find(value.name); found != transposed_.end()) {
    other.name = found->second;
    return other;
  }
  // The axes of ONNX from which those of `other` come.
  std::vector<std::int64_t> order(value.shape.rank() + 1, 0);
  for (std::size_t axis = 0; axis < value.shape.rank(); ++axis)
    order[static_cast<std::size_t>(other.onnx_axis(axis))] = value.onnx_axis(axis);
  other.name = add("Transpose", {value.name}, value.shape, other, {{"perm", std::move(order)}}).name;
  transposed_[value.name] = other.name;
  transposed_[other.name] = value.name;
  return other;
}

OnnxValue OnnxBuilder::cast(const OnnxValue& value, OnnxType type) {
  if (value.type == type) return value;
  OnnxValue result = add("Cast", value, {}, {{"to", static_cast<std::int64_t>(type)}});
  result.type = type;
  return result;
}

OnnxValue OnnxBuilder::reshape(const OnnxValue& value, const Shape& shape) {
  OnnxValue last = channels_last(value);
  if (last.shape == shape) return last;
  std::vector<std::int64_t> dims{-1};  // the batch
  dims.insert(dims.end(), shape.extents().begin(), shape.extents().end());
  OnnxValue result = add("Reshape", {last.name, integers(dims)}, shape, last);
  result.type = last.type;
  return result;
}

std::string OnnxBuilder::scalar(float value) { return floats("constant", {}, {value}); }

std::string OnnxBuilder::integers(const std::vector<std::int64_t>& values) {
  std::string name = unique(layer_ + "/integers");
  graph_.constants.push_back({.name = name, .dims = {static_cast<std::int64_t>(values.size())}, .values = values});
  return name;
}

std::string OnnxBuilder::floats(const std::string& what, std::vector<std::int64_t> dims, std::vector<float> values) {
  std::string name = unique(layer_ + "/" + what);
  graph_.constants.push_back({.name = name, .dims = std::move(dims), .values = std::move(values)});
  return name;
}

std::string OnnxBuilder::per_channel(const std::string& what, std::vector<float> values, const OnnxValue& value) {
  if (values.size() == 1) return floats(what, {}, std::move(values));
  std::vector<std::int64_t> dims{static_cast<std::int64_t>(values.size())};
  if (value.channels_first) dims.resize(value.shape.rank(), 1);
  return floats(what, std::move(dims), std::move(values));
}

std::string OnnxBuilder::unique(const std::string& name) {
  if (names_.insert(name).second) return name;
  std::size_t& suffix = next_suffix_[name];
  for (;;) {
    std::string numbered = name + "_" + std::to_string(++suffix);
    if (names_.insert(numbered).second) return numbered;
  }
}

}  // namespace lockstep
