// Invariants of all layers and activation functions: names, fields and their ranges, formulas.
#include "core/variant_types.hpp"
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "support/catch.hpp"

#include <cmath>
#include <limits>
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
