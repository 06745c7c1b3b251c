// Models as graphs of ONNX: transposes, names, weights and refusals. What the graphs compute is compared with Keras by
// tests/interop/onnx_test.py.
#include "export/onnx_lowering.hpp"
#include "export/onnx_builder.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"
#include "unit/checkpoint/random_model.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

OnnxGraph lowered(Architecture architecture) {
  ModelData model{std::move(architecture), {}, {}};
  model.weights = weights_for(model.architecture);
  for (NamedTensor& weight : model.weights)
    weight.values.assign(static_cast<std::size_t>(weight.shape.elements()), 0.5F);
  return lower_to_onnx(model);
}

std::ptrdiff_t count(const OnnxGraph& graph, const std::string& op_type) {
  return std::ranges::count(graph.nodes, op_type, &OnnxNode::op_type);
}

const OnnxNode& find(const OnnxGraph& graph, const std::string& op_type) {
  const auto found = std::ranges::find(graph.nodes, op_type, &OnnxNode::op_type);
  REQUIRE(found != graph.nodes.end());
  return *found;
}

/// Whether each node reads what exists before it, and no two values have one name.
bool is_in_order(const OnnxGraph& graph) {
  std::set<std::string> known{""};  // an input that is left out
  for (const OnnxPort& port : graph.inputs) {
    if (!known.insert(port.name).second) return false;
  }
  for (const OnnxConstant& constant : graph.constants) {
    if (!known.insert(constant.name).second) return false;
  }
  for (const OnnxNode& node : graph.nodes) {
    if (!std::ranges::all_of(node.inputs, [&](const auto& input) { return known.contains(input); })) return false;
    if (!known.insert(node.output).second) return false;
  }
  return std::ranges::all_of(graph.outputs, [&](const OnnxPort& port) { return known.contains(port.name); });
}

}  // namespace

TEST_CASE("a chain of image layers is transposed where it begins and where it ends") {
  const OnnxGraph graph =
      lowered(Sequential{Input({8, 8, 3}), Conv2D(4, 3, {.padding = "same", .activation = "silu"}),
                         BatchNormalization(), ReLU(), ZeroPadding2D(1), MaxPooling2D(), Rescaling(2),
                         PReLU({.shared_axes = {1, 2}}), Conv2D(4, 1), Flatten(), Dense(2)});
  CHECK(count(graph, "Transpose") == 2);
  CHECK(is_in_order(graph));
}

TEST_CASE("a global pooling needs no transpose back") {
  const OnnxGraph graph = lowered(Sequential{Input({8, 8, 3}), Conv2D(4, 3), GlobalAveragePooling2D(), Dense(2)});
  CHECK(count(graph, "Transpose") == 1);
}

TEST_CASE("branches of images merge without transposes") {
  const Tensor input = Input({8, 8, 3});
  const Tensor left = Conv2D(4, 3, {.padding = "same"})(input);
  const Tensor right = DepthwiseConv2D(3, {.padding = "same"})(input);
  const Tensor joined = Concatenate()({left, right});
  const Tensor scaled = Multiply()({joined, GlobalMaxPooling2D({.keepdims = true})(joined)});
  const OnnxGraph graph = lowered(Functional(input, GlobalMaxPooling2D()(scaled)));
  CHECK(count(graph, "Transpose") == 1);
  CHECK(find(graph, "Concat").attributes.front().value == decltype(OnnxAttribute::value)(std::int64_t{1}));
}

TEST_CASE("a tensor that is read in both orders is transposed once") {
  const Tensor input = Input({8, 8, 3});
  const Tensor x = Conv2D(4, 1)(input);
  const Tensor vectors = Dense(4)(x);
  const Tensor others = Dense(4)(x);
  const OnnxGraph graph = lowered(Functional({input}, {vectors, others, x}));
  CHECK(count(graph, "Transpose") == 2);
  CHECK(is_in_order(graph));
}

TEST_CASE("layers without images are not transposed") {
  CHECK(count(lowered(Sequential{Input({6}), Dense(4), BatchNormalization(), Softmax()}), "Transpose") == 0);
  CHECK(count(lowered(Sequential{Input({6, 4}), LayerNormalization(), Dense(4)}), "Transpose") == 0);
}

TEST_CASE("inputs and outputs have Keras' names, each once") {
  const Tensor input = Input({4}, "x");
  const Tensor y = Dense(4, {.name = "y"})(input);
  const OnnxGraph graph = lowered(Functional({input}, {y, y, input}));
  REQUIRE(graph.outputs.size() == 3);
  CHECK(graph.inputs.front().name == "x");
  CHECK(graph.outputs[0].name == "y");
  CHECK(graph.outputs[0].dims == std::vector<std::int64_t>{4});
  std::set<std::string> names;
  for (const OnnxPort& port : graph.outputs) names.insert(port.name);
  CHECK(names.size() == 3);
  CHECK(count(graph, "Identity") == 2);
  CHECK(is_in_order(graph));
}

TEST_CASE("a shared layer's weights are stored once") {
  const Tensor left = Input({8, 8, 1});
  const Tensor right = Input({8, 8, 1});
  const Conv2D shared(4, 3);
  const OnnxGraph graph = lowered(Functional({left, right}, {Add()({shared(left), shared(right)})}));
  CHECK(count(graph, "Conv") == 2);
  CHECK(graph.constants.size() == 2);
}

TEST_CASE("an Input of indices keeps its type") {
  const OnnxGraph graph = lowered(Sequential{Input({3}, {}, InputType::int32), Flatten(), Embedding(20, 4)});
  CHECK(graph.inputs.front().type == OnnxType::int32);
  CHECK(count(graph, "Cast") == 0);
}

TEST_CASE("what acts in training only leaves nothing behind") {
  const OnnxGraph graph = lowered(Sequential{Input({8, 8, 3}), RandomFlip(), Dropout(0.5), GaussianNoise(0.1),
                                             SpatialDropout2D(0.5), ActivityRegularization({.l2 = 1})});
  REQUIRE(graph.nodes.size() == 1);
  CHECK(graph.nodes.front().op_type == "Identity");
}

TEST_CASE("an array's axes change places") {
  CHECK(permuted({1, 2, 3, 4, 5, 6}, {2, 3}, {1, 0}) == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(permuted({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}, {2, 0, 1}) == std::vector<float>{1, 3, 5, 7, 2, 4, 6, 8});
}

TEST_CASE("a function that ONNX lacks is refused with its layer") {
  const Sequential model{Input({4}), Dense(2, {.activation = ActivationFunction(ActivationFunction::Kind::count_)})};
  CHECK(message_of<DataError>([&] { (void)lowered(model); }) ==
        "the layer 'dense' (Dense) cannot be exported: its activation 'unknown' has no exact form in ONNX");
}

TEST_CASE("random models of all layers make graphs in order") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const ModelData model = random_model(seed);
    CAPTURE(seed);
    for (const int opset : {default_onnx_opset, max_onnx_opset}) {
      const OnnxGraph graph = lower_to_onnx(model, opset);
      CHECK(is_in_order(graph));
      CHECK(graph.outputs.size() == model.architecture.outputs().size());
    }
  }
}
