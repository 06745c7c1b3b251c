// Invariants of all layers and activation functions: names, fields and their ranges, formulas.
#include "core/variant_types.hpp"
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/sequential.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

using namespace lockstep;

namespace {

/// Collects the keys of fields.
struct KeyCollector : FieldVisitor {
  std::vector<std::string> keys;

  void add(std::string_view key) { keys.emplace_back(key); }
  void required(std::string_view key, const auto& /*value*/, const auto&... /*range*/) { add(key); }
  void optional(std::string_view key, const auto& /*value*/, const auto&... /*range*/) { add(key); }
  void constant(std::string_view key, const auto& /*value*/) { add(key); }
  void expected(std::string_view key, const auto& /*value*/) { add(key); }
  void ignored(std::string_view key) { add(key); }
  void unused(std::string_view key) { add(key); }
  void last_axis(std::string_view key) { add(key); }
};

/// Counts the fields whose values are out of range.
struct OutOfRange : FieldVisitor {
  int count = 0;

  void optional(std::string_view /*key*/, double value, const Interval& range) {
    count += range.contains(value) ? 0 : 1;
  }
  static void optional(std::string_view /*key*/, const auto& /*value*/, const auto&... /*range*/) {}
};

}  // namespace

TEST_CASE("automatic names are Keras' snake case of the class") {
  CHECK(to_snake_case("InputLayer") == "input_layer");
  CHECK(to_snake_case("Conv2D") == "conv2d");
  CHECK(to_snake_case("Conv2DTranspose") == "conv2d_transpose");
  CHECK(to_snake_case("GlobalAveragePooling2D") == "global_average_pooling2d");
  CHECK(to_snake_case("BatchNormalization") == "batch_normalization");
  CHECK(to_snake_case("LeakyReLU") == "leaky_re_lu");
  CHECK(to_snake_case("PReLU") == "p_re_lu");
}

TEST_CASE("every layer has a unique class, unique keys and defaults within their ranges") {
  std::set<std::string_view> classes;
  for_each_alternative<Layer>([&]<typename L>(std::type_identity<L>) {
    INFO(LayerTraits<L>::class_name);
    CHECK(classes.insert(LayerTraits<L>::class_name).second);
    L layer = blank_layer<L>();
    if constexpr (requires { LayerTraits<L>::complete(layer); }) LayerTraits<L>::complete(layer);
    CHECK(class_name_of(Layer(layer)) == LayerTraits<L>::class_name);

    KeyCollector collector;
    LayerTraits<L>::fields(collector, layer);
    CHECK(std::set<std::string>(collector.keys.begin(), collector.keys.end()).size() == collector.keys.size());
    OutOfRange out_of_range;
    LayerTraits<L>::fields(out_of_range, layer);
    CHECK(out_of_range.count == 0);
  });
}

TEST_CASE("the activation that a layer ends with is found among its fields") {
  CHECK(activation_of(Dense(2, {.activation = softmax})) == softmax);
  CHECK(activation_of(Conv2D(2, 3)) == linear);
  CHECK(activation_of(Activation(relu)) == relu);
  CHECK(activation_of(Softmax()) == softmax);
  CHECK_FALSE(activation_of(Flatten()));
}

TEST_CASE("intervals contain finite numbers only and say what they contain") {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const Interval rate{.min = 0, .max = 1, .includes_max = false};
  CHECK(rate.contains(0));
  CHECK_FALSE(rate.contains(1));
  CHECK_FALSE(rate.contains(nan));
  CHECK(rate.to_string() == "at least 0 and below 1");
  const Interval positive{.min = 0, .includes_min = false};
  CHECK_FALSE(positive.contains(0));
  CHECK_FALSE(positive.contains(infinity));
  CHECK(positive.to_string() == "above 0");
  CHECK(Interval{.min = 0, .max = 1}.to_string() == "between 0 and 1");
  CHECK_FALSE(Interval{}.contains(-infinity));
  CHECK(Interval{}.to_string() == "a finite number");
}

TEST_CASE("every elementwise activation's gradient matches finite differences of its value") {
  std::set<std::string_view> names;
  for (const ActivationFunction function : named_activations()) {
    CAPTURE(keras_name(function));
    CHECK(names.insert(keras_name(function)).second);
    if (!is_elementwise(function)) continue;
    for (const float x : {-2.5F, -0.3F, 0.2F, 1.7F}) {
      const float h = 1e-3F;
      const double slope = (static_cast<double>(activate(function, x + h)) - activate(function, x - h)) / (2.0 * h);
      const float v = derivative_of(function) == Derivative::from_output ? activate(function, x) : x;
      CHECK(activation_gradient(function, v, 3.0F) == Approx(3 * slope).margin(3e-3));
    }
  }
}

TEST_CASE("each constraint is that of its variable") {
  const auto bounds_of = [](const Layer& layer, const Shape& input) {
    std::map<std::string, double> bounds;
    const Sequential model{Input(input), layer};
    for (const ParameterInfo& parameter : model.layers()[1].parameters) {
      if (parameter.trainable) bounds[parameter.name] = parameter.constraint.max_value;
    }
    return bounds;
  };
  using Bounds = std::map<std::string, double>;
  const Shape image{8, 8, 2};
  const Shape sequence{8, 2};
  const MaxNorm one(1.5);
  const MaxNorm two(2.5);
  const MaxNorm three(3.5);
  const Bounds plain{{"kernel", 1.5}, {"bias", 2.5}};
  CHECK(bounds_of(Dense(3, {.kernel_constraint = one, .bias_constraint = two}), {4}) == plain);
  CHECK(bounds_of(Conv2D(3, 2, {.kernel_constraint = one, .bias_constraint = two}), image) == plain);
  CHECK(bounds_of(Conv1D(3, 2, {.kernel_constraint = one, .bias_constraint = two}), sequence) == plain);
  CHECK(bounds_of(Conv2DTranspose(3, 2, {.kernel_constraint = one, .bias_constraint = two}), image) == plain);
  CHECK(bounds_of(Conv1DTranspose(3, 2, {.kernel_constraint = one, .bias_constraint = two}), sequence) == plain);
  CHECK(bounds_of(DepthwiseConv2D(2, {.depthwise_constraint = one, .bias_constraint = two}), image) == plain);
  CHECK(bounds_of(DepthwiseConv1D(2, {.depthwise_constraint = one, .bias_constraint = two}), sequence) == plain);
  const Bounds separable{{"depthwise_kernel", 1.5}, {"pointwise_kernel", 3.5}, {"bias", 2.5}};
  CHECK(bounds_of(
            SeparableConv2D(3, 2, {.depthwise_constraint = one, .pointwise_constraint = three, .bias_constraint = two}),
            image) == separable);
  CHECK(bounds_of(
            SeparableConv1D(3, 2, {.depthwise_constraint = one, .pointwise_constraint = three, .bias_constraint = two}),
            sequence) == separable);
  const Bounds normalization{{"gamma", 1.5}, {"beta", 2.5}};
  CHECK(bounds_of(BatchNormalization({.beta_constraint = two, .gamma_constraint = one}), image) == normalization);
  CHECK(bounds_of(LayerNormalization({.beta_constraint = two, .gamma_constraint = one}), image) == normalization);
  CHECK(bounds_of(GroupNormalization(1, {.beta_constraint = two, .gamma_constraint = one}), image) == normalization);
  CHECK(bounds_of(PReLU({.alpha_constraint = one}), image) == Bounds{{"alpha", 1.5}});
  CHECK(bounds_of(Embedding(5, 3, {.embeddings_constraint = one}), {4}) == Bounds{{"embeddings", 1.5}});
}

TEST_CASE("each regularizer is that of its variable") {
  const auto penalties_of = [](const Layer& layer, const Shape& input) {
    std::map<std::string, double> penalties;
    const Sequential model{Input(input), layer};
    for (const ParameterInfo& parameter : model.layers()[1].parameters) {
      if (parameter.trainable) penalties[parameter.name] = parameter.regularizer.l2;
    }
    return penalties;
  };
  using Penalties = std::map<std::string, double>;
  const Shape image{8, 8, 2};
  const Shape sequence{8, 2};
  const Penalties plain{{"kernel", 1}, {"bias", 2}};
  CHECK(penalties_of(Dense(3, {.kernel_regularizer = L2(1), .bias_regularizer = L2(2)}), {4}) == plain);
  CHECK(penalties_of(Conv2D(3, 2, {.kernel_regularizer = L2(1), .bias_regularizer = L2(2)}), image) == plain);
  CHECK(penalties_of(Conv1D(3, 2, {.kernel_regularizer = L2(1), .bias_regularizer = L2(2)}), sequence) == plain);
  CHECK(penalties_of(Conv2DTranspose(3, 2, {.kernel_regularizer = L2(1), .bias_regularizer = L2(2)}), image) == plain);
  CHECK(penalties_of(Conv1DTranspose(3, 2, {.kernel_regularizer = L2(1), .bias_regularizer = L2(2)}), sequence) ==
        plain);
  CHECK(penalties_of(DepthwiseConv1D(2, {.depthwise_regularizer = L2(1), .bias_regularizer = L2(2)}), sequence) ==
        plain);
  CHECK(penalties_of(DepthwiseConv2D(2, {.depthwise_regularizer = L2(1), .bias_regularizer = L2(2)}), image) == plain);
  const Penalties separable{{"depthwise_kernel", 1}, {"pointwise_kernel", 3}, {"bias", 2}};
  CHECK(penalties_of(
            SeparableConv2D(
                3, 2, {.depthwise_regularizer = L2(1), .pointwise_regularizer = L2(3), .bias_regularizer = L2(2)}),
            image) == separable);
  CHECK(penalties_of(
            SeparableConv1D(
                3, 2, {.depthwise_regularizer = L2(1), .pointwise_regularizer = L2(3), .bias_regularizer = L2(2)}),
            sequence) == separable);
  const Penalties normalization{{"gamma", 1}, {"beta", 2}};
  CHECK(penalties_of(BatchNormalization({.beta_regularizer = L2(2), .gamma_regularizer = L2(1)}), image) ==
        normalization);
  CHECK(penalties_of(LayerNormalization({.beta_regularizer = L2(2), .gamma_regularizer = L2(1)}), image) ==
        normalization);
  CHECK(penalties_of(GroupNormalization(1, {.beta_regularizer = L2(2), .gamma_regularizer = L2(1)}), image) ==
        normalization);
  CHECK(penalties_of(PReLU({.alpha_regularizer = L2(1)}), image) == Penalties{{"alpha", 1}});
  CHECK(penalties_of(Embedding(5, 3, {.embeddings_regularizer = L2(1)}), {4}) == Penalties{{"embeddings", 1}});
}
