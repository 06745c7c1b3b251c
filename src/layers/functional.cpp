// See functional.hpp and tensor.hpp.
#include <lockstep/layers/functional.hpp>

#include "layers/call_order.hpp"
#include "layers/layer_registry.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

struct Tensor::Node {
  Layer layer;
  LayerIdentity identity;
  std::vector<Tensor> inputs;
  Shape shape;
};

Tensor::Tensor(Layer layer, const LayerIdentity& identity, std::vector<Tensor> inputs) {
  const std::string class_name(class_name_of(layer));
  std::string name = name_of(layer);
  if (name.empty()) name = to_snake_case(class_name);
  if (inputs.empty() && !std::holds_alternative<Input>(layer)) {
    throw UsageError("layer '" + name + "' (" + class_name + ") is called on no tensors");
  }
  LayerInfo info{.layer = layer,
                 .class_name = class_name,
                 .name = std::move(name),
                 .input_shape = {},
                 .output_shape = {},
                 .parameters = {}};
  std::vector<Shape> shapes;
  shapes.reserve(inputs.size());
  for (const Tensor& input : inputs) shapes.push_back(input.shape());
  infer_shapes(info, shapes);
  node_ = std::make_shared<const Node>(Node{std::move(layer), identity, std::move(inputs), info.output_shape});
}

Tensor::Tensor(const Input& input) : Tensor(Layer(input), input.identity, {}) {}

const Shape& Tensor::shape() const { return node_->shape; }

/// Collects the calls that tensors depend on. Calls of one layer are told by its identity; two tensors of one Input are
/// the same call.
class Functional::Collector {
 public:
  LayerGraph collect(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
    if (inputs.empty()) throw UsageError("a Functional model has no inputs; give it at least one Input");
    if (outputs.empty()) throw UsageError("a Functional model has no outputs; give it at least one tensor");
    for (const Tensor& input : inputs) {
      if (!std::holds_alternative<Input>(input.node_->layer)) {
        throw UsageError("an input of a Functional model is the output of a " +
                         std::string(class_name_of(input.node_->layer)) + "; it must be an Input");
      }
      graph_.inputs.push_back(call_of(input));
    }
    for (const Tensor& output : outputs) graph_.outputs.push_back(call_of(output));
    for (std::size_t call = 0; call < graph_.calls.size(); ++call) {
      const Layer& layer = graph_.layers[graph_.calls[call].layer];
      const bool is_input = std::holds_alternative<Input>(layer);
      const bool is_listed = std::ranges::find(graph_.inputs, static_cast<int>(call)) != graph_.inputs.end();
      if (!is_input || is_listed) continue;
      throw UsageError("an output of a Functional model depends on the Input '" + name_of(layer) + "' of shape " +
                       std::get<Input>(layer).shape.to_string() + ", which is not among the model's inputs");
    }
    return std::move(graph_);
  }

 private:
  using Node = Tensor::Node;

  /// The index of a tensor's call. Adds it after the calls that it reads.
  int call_of(const Tensor& tensor) {
    const Node* const node = tensor.node_.get();
    if (const auto found = calls_.find(node); found != calls_.end()) return found->second;
    LayerCall call;
    for (const Tensor& input : node->inputs) call.inputs.push_back(call_of(input));
    const bool is_input = std::holds_alternative<Input>(node->layer);
    const auto same = std::ranges::find(identities_, node->identity);
    call.layer = static_cast<int>(same - identities_.begin());
    if (same == identities_.end()) {
      identities_.push_back(node->identity);
      graph_.layers.push_back(node->layer);
    } else if (is_input) {
      const auto is_its = [&](const LayerCall& any) { return any.layer == call.layer; };
      const auto first = std::ranges::find_if(graph_.calls, is_its);
      return calls_[node] = static_cast<int>(first - graph_.calls.begin());
    }
    graph_.calls.push_back(std::move(call));
    return calls_[node] = static_cast<int>(graph_.calls.size()) - 1;
  }

  LayerGraph graph_;
  std::vector<LayerIdentity> identities_;  ///< of graph_.layers
  std::map<const Node*, int> calls_;
};

Functional::Functional(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs, std::string name)
    : Functional(Collector().collect(inputs, outputs), std::move(name)) {}

Functional::Functional(const Tensor& input, const Tensor& output, std::string name)
    : Functional(std::vector{input}, std::vector{output}, std::move(name)) {}

Functional::Functional(const LayerGraph& graph, std::string name)
    : Architecture(std::move(name), order_as_keras(graph), false) {}

}  // namespace lockstep
