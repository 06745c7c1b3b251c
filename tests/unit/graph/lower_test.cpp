// Lowering: which operations are fused, which layers need none, and which gradients are not computed.
#include "graph/lower.hpp"

#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/models.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using lockstep::testing::message_of;
using lockstep::testing::require_words;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});

std::string kinds(const std::vector<Operation>& operations) {
  std::string text;
  for (const Operation& operation : operations)
    text += std::string(text.empty() ? "" : " ") + std::string(to_string(operation.kind));
  return text;
}

}  // namespace

TEST_CASE("the tutorial's model lowers to six forward and three backward operations") {
  const Graph graph = lower(Sequential{Input({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}),
                                       Flatten(), Dense(128, {.activation = relu}), Dense(10)},
                            logits, Precision::float32);
  CHECK(kinds(graph.forward) == "gather convolution dense dense loss");
  CHECK(kinds(graph.backward) == "dense_backward dense_backward convolution_backward");
  CHECK(graph.tensors.size() == 4);
  CHECK(graph.tensors[0].height == 28);
  CHECK(graph.tensors[0].channels == 1);
  CHECK(graph.forward[1].activation == relu);
  CHECK(graph.backward[0].input_gradient);
  CHECK(graph.backward[0].input_activation == relu);
  CHECK(!graph.backward[2].input_gradient);  // of the images
  CHECK(graph.parameters.size() == 7);
  CHECK(graph.parameters.back().rule == UpdateRule::assign);
  CHECK(graph.parameters[2].name == "dense/kernel");
}

TEST_CASE("activations are fused into the operation before them where possible") {
  const auto forward = [](std::vector<Layer> layers) {
    layers.insert(layers.begin(), Input({6, 6, 2}));
    return kinds(lower(Sequential(std::move(layers)), MeanSquaredError(), Precision::float32).forward);
  };
  CHECK(forward({Conv2D(3, 1), Activation(relu)}) == "gather convolution loss");
  CHECK(forward({Conv2D(3, 1), BatchNormalization(), Activation(relu)}) ==
        "gather convolution batch_normalization loss");
  CHECK(forward({Conv2D(3, 1, {.activation = relu}), Activation(sigmoid)}) == "gather convolution activation loss");
  CHECK(forward({Conv2D(3, 1), MaxPooling2D(), Activation(relu)}) == "gather convolution max_pooling activation loss");
  CHECK(forward({Conv2D(3, 1, {.activation = softmax})}) == "gather convolution softmax loss");
  CHECK(forward({Conv2D(3, 1), Flatten(), Activation(relu), Dense(2)}) == "gather convolution dense loss");
  CHECK(forward({Activation(relu)}) == "gather activation loss");
  CHECK(forward({Activation(activations::linear)}) == "gather loss");
}

TEST_CASE("backward ends at the first trainable layer") {
  using testing::frozen;
  const Graph graph = lower(Sequential{Input({8, 8, 1}), frozen(Conv2D(4, 3)), frozen(BatchNormalization()),
                                       Activation(sigmoid), MaxPooling2D(), Conv2D(3, 1), frozen(BatchNormalization()),
                                       frozen(Conv2D(2, 1)), Flatten(), frozen(Dense(4)), Activation(softmax)},
                            logits, Precision::float32);
  CHECK(kinds(graph.backward) ==
        "dense_backward convolution_backward batch_normalization_backward convolution_backward");
  CHECK(graph.backward[0].is_frozen);
  CHECK(graph.backward[1].is_frozen);
  CHECK(graph.backward[2].is_frozen);
  CHECK(!graph.backward[3].is_frozen);
  CHECK(!graph.backward[3].input_gradient);

  const Graph none = lower(Sequential{Input({8}), frozen(Dense(4))}, logits, Precision::float32);
  CHECK(none.backward.empty());
  CHECK(!none.forward.back().operands.front().needs_gradient);
}

TEST_CASE("layers without effect lower to no operation") {
  const Graph graph =
      lower(Sequential{Input({8}), Reshape({2, 4}), Flatten(), Dropout(0), Dense(3)}, logits, Precision::float32);
  CHECK(kinds(graph.forward) == "gather dense loss");
  const Graph global =
      lower(Sequential{Input({3, 3, 2}), Conv2D(4, 1), GlobalAveragePooling2D()}, logits, Precision::float32);
  CHECK(kinds(global.forward) == "gather convolution average_pooling loss");
}

TEST_CASE("Rescaling is fused into gather and bytes stay bytes") {
  const Graph plain = lower(Sequential{Input({4}), Dense(3)}, logits, Precision::float32);
  CHECK(plain.inputs[0].byte_scale == 1.0 / 255);
  CHECK(plain.inputs[0].byte_divisor() == 255.0F);
  CHECK(plain.inputs[0].scale == 1);
  CHECK(plain.inputs[0].offset == 0);

  const Sequential rescaled{Input({4}), Rescaling(0.5, 3), Reshape({2, 2}), Rescaling(10, -1), Flatten(), Dense(3)};
  const Graph graph = lower(rescaled, logits, Precision::float32);
  CHECK(kinds(graph.forward) == "gather dense loss");
  CHECK(graph.inputs[0].byte_scale == 1);
  CHECK(graph.inputs[0].scale == 5);
  CHECK(graph.inputs[0].offset == 29);
  CHECK(lower(rescaled, logits, Precision::float32, 1.0 / 255).inputs[0].byte_scale == 1.0 / 255);
  CHECK(lower(Sequential{Input({4}), Dense(3)}, logits, Precision::float32, 0.5).inputs[0].byte_divisor() == 2.0F);
}

TEST_CASE("a crossentropy reads the logits before a softmax, or the probabilities that it clips") {
  const Sequential model{Input({4}), Dense(3, {.activation = softmax})};
  const auto is_output_compared = [&](const Loss& loss) {
    const Graph graph = lower(model, loss, Precision::float32);
    return graph.forward.back().operands.front().tensor == graph.outputs[0].tensor;
  };
  CHECK_FALSE(is_output_compared(CategoricalCrossentropy()));
  CHECK(is_output_compared(CategoricalCrossentropy{.clips_probabilities = true}));
  CHECK(is_output_compared(MeanSquaredError()));
}

TEST_CASE("Rescaling after other layers is an operation, and bytes stay bytes") {
  for (const Layer& before :
       {Layer(Dense(4)), Layer(Activation(relu)), Layer(Dropout(0.5)), Layer(BatchNormalization())}) {
    const Graph graph = lower(Sequential{Input({4}), before, Rescaling(0.5, 3), Dense(3)}, logits, Precision::float32);
    CHECK(graph.forward[2].kind == OperationKind::affine);
    const bool has_weights =
        std::holds_alternative<Dense>(before) || std::holds_alternative<BatchNormalization>(before);
    CHECK(graph.inputs[0].byte_scale == (has_weights ? 1.0 / 255 : 1));  // behind weights it scales no input
    CHECK(graph.inputs[0].scale == 1);
  }
  CHECK(
      lower(Sequential{Input({4}), Normalization({.mean = {1}, .variance = {4}}), Dense(3)}, logits, Precision::float32)
          .inputs[0]
          .byte_scale == 1);
}

TEST_CASE("an Embedding reads whole numbers from the model's input") {
  const Graph graph =
      lower(Sequential{Input({4}), Embedding(10, 2), Flatten(), Dense(3)}, logits, Precision::mixed_bfloat16);
  CHECK(kinds(graph.forward) == "gather embedding dense loss");
  CHECK(graph.inputs[0].byte_scale == 1);
  CHECK(graph.tensors[0].type == ElementType::float32);  // in mixed precision, too
  CHECK_THROWS_AS(static_cast<void>(lower(Sequential{Input({4}), Dense(4), Embedding(10, 2), Flatten(), Dense(3)},
                                          logits, Precision::float32)),
                  UsageError);
}

TEST_CASE("Dense accepts any input layout, other operations get Keras' order") {
  const Graph as_it_lies =
      lower(Sequential{Input({6, 6, 2}), Conv2D(32, 1), Flatten(), Dropout(0.5), Activation(relu), Dense(3)}, logits,
            Precision::float32);
  for (const TensorSpec& tensor : as_it_lies.tensors) CHECK(tensor.alias == -1);
  CHECK(!as_it_lies.tensors[1].requires_channels_last);
  CHECK(as_it_lies.tensors[2].channels == 32);  // Dropout keeps the image's shape

  const Graph in_order = lower(Sequential{Input({6, 6, 2}), Conv2D(32, 1), Flatten(), BatchNormalization(), Dense(3)},
                               logits, Precision::float32);
  CHECK(in_order.tensors[1].requires_channels_last);
  CHECK(in_order.tensors[2].alias == 1);
  CHECK(in_order.tensors[2].channels == 6 * 6 * 32);
  CHECK(in_order.tensors.back().requires_channels_last);  // the model's output
}

TEST_CASE("unused gradients are not computed") {
  const Graph graph = lower(
      Sequential{Input({6, 6, 2}), MaxPooling2D(), Dropout(0.5), Conv2D(3, 1), AveragePooling2D(), Flatten(), Dense(2)},
      logits, Precision::float32);
  CHECK(kinds(graph.backward) == "dense_backward average_pooling_backward convolution_backward");
  CHECK(!graph.backward.back().input_gradient);
  const Graph nothing_learns =
      lower(Sequential{Input({4}), Activation(softmax)}, SparseCategoricalCrossentropy(), Precision::float32);
  CHECK(nothing_learns.backward.empty());
  CHECK(!nothing_learns.forward.back().operands.front().needs_gradient);
}

TEST_CASE("crossentropy after a softmax reads its logits") {
  const std::vector<std::vector<Layer>> ends{{Dense(3, {.activation = softmax})}, {Dense(3), Activation(softmax)}};
  for (const std::vector<Layer>& end : ends) {
    std::vector<Layer> layers{Input({4}), Dense(5)};
    layers.insert(layers.end(), end.begin(), end.end());
    for (const bool from_logits : {false, true}) {
      const Graph graph =
          lower(Sequential(layers), CategoricalCrossentropy({.from_logits = from_logits}), Precision::float32);
      CHECK(kinds(graph.forward) == "gather dense dense softmax loss");
      CHECK(kinds(graph.backward) == "dense_backward dense_backward");
      CHECK(graph.forward.back().input == graph.forward[3].output);
      CHECK(graph.forward.back().operands.front().tensor == graph.forward[2].output);
      CHECK(graph.forward.back().operands.front().needs_gradient);
      CHECK(std::get<CategoricalCrossentropy>(graph.outputs[0].loss).from_logits);
    }
  }
  for (const Loss& other : {Loss(MeanSquaredError()), Loss(CategoricalCrossentropy())}) {
    const bool is_crossentropy = std::holds_alternative<CategoricalCrossentropy>(other);
    std::vector<Layer> layers{Input({4}), Dense(3, {.activation = softmax})};
    if (is_crossentropy) layers.emplace_back(Activation(relu));
    const Graph graph = lower(Sequential(layers), other, Precision::float32);
    CHECK(graph.forward.back().operands.front().tensor == graph.forward.back().input);
    CHECK(kinds(graph.backward).find("softmax_backward") != std::string::npos);
  }
  const Sequential binary{Input({4}), Dense(3, {.activation = sigmoid})};
  const Graph graph = lower(binary, BinaryCrossentropy(), Precision::float32);
  CHECK(kinds(graph.forward) == "gather dense activation loss");
  CHECK(kinds(graph.backward) == "dense_backward");
  CHECK(graph.forward.back().operands.front().tensor == graph.forward[1].output);
}

TEST_CASE("focal crossentropies read the model's output") {
  const auto reads_output = [](ActivationFunction last, const Loss& loss) {
    const Graph graph = lower(Sequential{Input({4}), Dense(3, {.activation = last})}, loss, Precision::float32);
    return graph.forward.back().operands.front().tensor == graph.forward.back().input &&
           graph.outputs[0].loss.index() == loss.index();
  };
  CHECK(reads_output(softmax, CategoricalFocalCrossentropy()));
  CHECK(reads_output(sigmoid, BinaryFocalCrossentropy()));
}

TEST_CASE("backward from hidden logits ends at frozen layers") {
  Dense frozen(3, {.activation = softmax});
  frozen.trainable = false;
  const Graph graph = lower(Sequential{Input({4}), Dense(5), frozen}, CategoricalCrossentropy(), Precision::float32);
  CHECK(kinds(graph.backward) == "dense_backward dense_backward");
  Dense first(5);
  first.trainable = false;
  CHECK(lower(Sequential{Input({4}), first, frozen}, CategoricalCrossentropy(), Precision::float32).backward.empty());
}

TEST_CASE("mixed precision is bfloat16 up to the output of the last weighted layer") {
  const Graph graph = lower(Sequential{Input({6, 6, 2}), Conv2D(3, 1), BatchNormalization(), Flatten(), Dense(4),
                                       Dense(2), Activation(softmax)},
                            SparseCategoricalCrossentropy(), Precision::mixed_bfloat16);
  const std::size_t output = graph.tensors.size() - 2;  // Dense(2), in front of softmax
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    CHECK((graph.tensors[t].type == ElementType::float32) == (t >= output));
  }
}

TEST_CASE("the metrics parameter has a sum of each metric, in whole cache lines") {
  const Sequential model{Input({4}), Dense(3)};
  const auto storage_of = [&](std::vector<Metric> metrics) {
    const Graph graph = lower(model, MeanSquaredError(), Precision::float32, {}, std::move(metrics));
    return graph.parameters[static_cast<std::size_t>(graph.metrics_parameter())].storage;
  };
  CHECK(storage_of({}) == 16);
  CHECK(storage_of({accuracy, metrics::MeanAbsoluteError()}) == 16);
  CHECK_THROWS_AS(storage_of({metrics::SparseTopKCategoricalAccuracy()}), UsageError);
}

TEST_CASE("the precision is that of the layers, unless one is asked for") {
  const Sequential model{Input({4}), Dense(8, {.name = "first"}), Dense(8, {.name = "between"}),
                         Dense(3, {.name = "last"}), Activation(softmax)};
  const auto is_mixed = [](const Architecture& any, Precision precision) {
    return lower(any, MeanSquaredError(), precision).mixed_bfloat16;
  };
  Architecture low = model;
  low.set_precision(Precision::mixed_bfloat16);
  Architecture float_outputs = low;  // as Keras recommends
  float_outputs.set_precision("last", Precision::float32);
  CHECK_FALSE(is_mixed(model, Precision::automatic));
  for (const Architecture& any : {low, float_outputs}) {
    CHECK(is_mixed(any, Precision::automatic));
    CHECK_FALSE(is_mixed(any, Precision::float32));
  }
  CHECK(is_mixed(model, Precision::mixed_bfloat16));

  Architecture alternating = low;
  alternating.set_precision("between", Precision::float32);
  require_words(message_of<UsageError>([&] { (void)is_mixed(alternating, Precision::automatic); }),
                {"'between' (Dense) is float32", "--precision mixed_bfloat16 or --precision float32"});
  CHECK(is_mixed(alternating, Precision::mixed_bfloat16));
  CHECK_THROWS_AS(alternating.set_precision("none", Precision::float32), UsageError);
}

TEST_CASE("a crossentropy takes a vector of classes for each pixel") {
  const Sequential model{Input({6, 6, 2}), Conv2D(3, 1)};
  CHECK_NOTHROW(lower(model, logits, Precision::float32));
  CHECK_NOTHROW(lower(model, MeanSquaredError(), Precision::float32));
}

TEST_CASE("each input of several has a gather and its own scale of bytes") {
  const Tensor words = Input({4}, "words", InputType::int32);
  const Tensor image = Input({5, 5, 1}, "image");
  const Tensor number = Input({2}, "number");
  const Tensor seen = Flatten()(Conv2D(2, 3)(image));
  const Tensor all = Concatenate()({Flatten()(Embedding(10, 3)(words)), seen, Rescaling(0.5, 3)(number)});
  const Functional model(std::vector{image, words, number}, std::vector{Dense(3)(all)});
  const Graph graph = lower(model, logits, Precision::mixed_bfloat16);
  CHECK_FALSE(graph.is_chain);
  REQUIRE(graph.inputs.size() == 3);
  CHECK(graph.inputs[0].byte_scale == 1.0 / 255);
  CHECK(graph.inputs[1].byte_scale == 1);
  CHECK(graph.inputs[2].byte_scale == 1);
  CHECK(graph.inputs[0].scale == 1);
  CHECK(graph.inputs[2].scale == 0.5);
  CHECK(graph.inputs[2].offset == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto writes = [&](const Operation& operation) { return operation.output == graph.inputs[i].tensor; };
    const auto gather = std::ranges::find_if(graph.forward, writes);
    REQUIRE(gather != graph.forward.end());
    CHECK(gather->kind == OperationKind::gather);
    CHECK(gather->model_input == i);
  }
  CHECK(graph.tensors[graph.inputs[0].tensor].name == "image");
  CHECK(graph.tensors[graph.inputs[0].tensor].type == ElementType::bfloat16);
  CHECK(graph.tensors[graph.inputs[1].tensor].type == ElementType::float32);  // indices
  const Graph scaled = lower(model, logits, Precision::float32, 0.25);
  CHECK(scaled.inputs[0].byte_scale == 0.25);
  CHECK(scaled.inputs[1].byte_scale == 1);  // integers are not scaled
}

TEST_CASE("encodings read the model's input or each other, in float32") {
  const Sequential model{Input({4}), Discretization({0, 1}), Flatten(), CategoryEncoding(3), Dense(3)};
  const Graph graph = lower(model, logits, Precision::mixed_bfloat16);
  CHECK(kinds(graph.forward) == "gather encode encode dense loss");
  CHECK(graph.inputs[0].byte_scale == 1);
  CHECK(graph.tensors[graph.forward[0].output].type == ElementType::float32);
  CHECK(graph.tensors[graph.forward[1].output].type == ElementType::float32);
  CHECK(graph.tensors[graph.forward[2].output].type == ElementType::bfloat16);
  CHECK(graph.backward.size() == 1);
  for (const Layer& layer : {Layer(Discretization({0})), Layer(CategoryEncoding(3))}) {
    const Sequential behind{Input({4}), Dense(4), layer, Flatten(), Dense(3)};
    CHECK_THROWS_AS(static_cast<void>(lower(behind, logits, Precision::float32)), UsageError);
  }
}

TEST_CASE("layers with which Keras computes in integers do not read the bins of a Discretization") {
  const auto lowered = [](std::vector<Layer> layers) {
    layers.insert(layers.begin(), {Input({4}), Discretization({0, 1})});
    layers.push_back(Dense(3));
    static_cast<void>(lower(Sequential(layers), logits, Precision::float32));
  };
  CHECK_NOTHROW(lowered({}));
  CHECK_NOTHROW(lowered({Embedding(3, 2), Flatten()}));
  CHECK_NOTHROW(lowered({Rescaling(1), BatchNormalization()}));
  CHECK_THROWS_AS(lowered({BatchNormalization()}), UsageError);
  CHECK_THROWS_AS(lowered({Flatten(), Activation(relu)}), UsageError);
}

TEST_CASE("an Input of integers among several is checked") {
  const Tensor whole = Input({4}, "whole", InputType::int32);
  const Tensor real = Input({4}, "real");
  const Functional mixed(std::vector{whole, real}, std::vector{Dense(3)(Concatenate()({real, whole}))});
  CHECK_THROWS_AS(static_cast<void>(lower(mixed, logits, Precision::float32)), UsageError);
  const Functional apart(std::vector{whole, real}, std::vector{Dense(3)(Concatenate()({real, Rescaling(1)(whole)}))});
  CHECK_NOTHROW(static_cast<void>(lower(apart, logits, Precision::float32)));
}

TEST_CASE("each output of several has a loss and its own sums") {
  const Tensor input = Input({4}, "input");
  const Tensor hidden = Dense(6, {.activation = relu, .name = "hidden"})(input);
  const Functional model(std::vector{input}, std::vector{Dense(3, {.activation = softmax, .name = "kind"})(hidden),
                                                         hidden, Dense(2, {.name = "place"})(hidden)});
  const CompileOptions options{
      .outputs = {{.output = "place", .loss = MeanSquaredError(), .loss_weight = 0.5},
                  {.output = "kind", .loss = SparseCategoricalCrossentropy(), .metrics = {accuracy}},
                  {.output = "hidden", .loss = MeanAbsoluteError(), .metrics = {metrics::MeanSquaredError()}}}};
  const Graph graph = lower(model, options, Precision::float32);
  CHECK_FALSE(graph.is_chain);
  REQUIRE(graph.outputs.size() == 3);
  CHECK(graph.outputs[0].name == "kind");
  CHECK(std::get<SparseCategoricalCrossentropy>(graph.outputs[0].loss).from_logits);  // behind the softmax
  CHECK(graph.outputs[1].name == "hidden");
  CHECK(graph.outputs[2].loss_weight == 0.5);
  CHECK(graph.outputs[0].first_sum == first_metric_sum);
  CHECK(graph.outputs[1].first_sum == graph.outputs[0].first_sum + 2);  // its loss and its accuracy
  CHECK(graph.outputs[2].first_sum > graph.outputs[1].first_sum + 1);
  for (std::size_t i = 0; i < 3; ++i) {
    const Operation& loss = graph.forward[graph.forward.size() - 3 + i];
    CHECK(loss.kind == OperationKind::loss);
    CHECK(loss.model_output == i);
    CHECK(loss.input == graph.outputs[i].tensor);
  }
  CHECK_THROWS_AS(static_cast<void>(lower(model, options, Precision::mixed_bfloat16)), UsageError);
}

TEST_CASE("the compile options of several outputs name each once") {
  const Tensor input = Input({4}, "input");
  const Tensor first = Dense(2, {.name = "first"})(input);
  const Functional model(std::vector{input}, std::vector{first, Dense(2, {.name = "second"})(first)});
  const auto refusal = [](const Architecture& of, const CompileOptions& options) {
    return message_of<UsageError>([&] { static_cast<void>(lower(of, options, Precision::float32)); });
  };
  const OutputOptions one{.output = "first", .loss = MeanSquaredError()};
  const OutputOptions other{.output = "second", .loss = MeanSquaredError()};
  require_words(refusal(model, {.outputs = {one}}), {"the output 'second' has no loss", "first and second"});
  require_words(refusal(model, {.outputs = {one, other, one}}), {"for the output 'first' too"});
  require_words(refusal(model, {.loss = MeanSquaredError(), .metrics = {accuracy}}), {"metrics", "first and second"});
  const Graph graph = lower(model, {.loss = MeanSquaredError()}, Precision::float32);  // one loss for all
  CHECK(std::holds_alternative<MeanSquaredError>(graph.outputs[1].loss));
}

TEST_CASE("a loss reads the logits of a softmax behind layers that return their input") {
  const auto reads_logits = [](const Sequential& model) {
    const Graph graph = lower(model, SparseCategoricalCrossentropy(), Precision::float32);
    const Operation& loss = graph.forward.back();
    return loss.operands.front().tensor != loss.input;
  };
  const Dense softmaxed(3, {.activation = softmax});
  CHECK(reads_logits({Input({4}), softmaxed}));
  CHECK(reads_logits({Input({4}), softmaxed, Activation(linear), Identity(), Dropout(0)}));
  CHECK_FALSE(reads_logits({Input({4}), softmaxed, Reshape({3})}));
  CHECK_FALSE(reads_logits({Input({4}), softmaxed, Identity(), Activation(relu)}));
  for (const Sequential& model : {Sequential{Input({4}), softmaxed, Dropout(0.5, {.name = "late"}), Identity()},
                                  Sequential{Input({4}), softmaxed, GaussianNoise(0.1, "late")}}) {
    const auto lower_with = [&model = model](const Loss& loss) {
      static_cast<void>(lower(model, loss, Precision::float32));
    };
    require_words(message_of<UsageError>([&] { lower_with(SparseCategoricalCrossentropy()); }),
                  {"layer 'late'", "--clip-probabilities", "lockstep.fit"});
    CHECK_NOTHROW(lower_with(MeanSquaredError()));
    CHECK_NOTHROW(lower_with(SparseCategoricalCrossentropy({.clips_probabilities = true})));
  }
  for (const Layer& last : {Layer(Dense(3, {.activation = softmax, .activity_regularizer = L2(0.1)})),
                            Layer(ActivityRegularization({.l1 = 0.1}))}) {
    const Sequential model{Input({4}), softmaxed, last};
    require_words(message_of<UsageError>(
                      [&] { static_cast<void>(lower(model, SparseCategoricalCrossentropy(), Precision::float32)); }),
                  {"activity_regularizer", "--clip-probabilities", "lockstep.fit"});
  }
}
