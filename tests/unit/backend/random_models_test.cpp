// Random models, which find combinations of layers that no other test has. LOCKSTEP_TEST_MODELS sets their number.
#include "checked_model.hpp"
#include "core/random.hpp"
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Draws one layer after the other. Redraws a layer that cannot follow the model so far.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed, RandomPurpose::test, 7) {}

  Sequential model() {
    layers_ = {Input({5 + below(5), 5 + below(5), channels()})};
    if (below(6) == 0) layers_ = {Input({(5 + below(5)) * (5 + below(5)) * 4}), Reshape({-1, 2, 2})};
    const int middle = 1 + below(5);
    for (int i = 0; i < middle; ++i) add([&] { return image_layer(); });
    if (below(5) == 0) {  // the output is an image, or what pooling left of it
      loss = MeanSquaredError();
      if (below(2) == 0) add([&] { return image_layer(); });
      if (below(3) == 0) add([&] { return Layer(Flatten()); });
      return Sequential(layers_);
    }
    add([&] { return below(4) == 0 ? Layer(GlobalAveragePooling2D()) : Layer(Flatten()); });
    const int vectors = below(4);
    for (int i = 0; i < vectors; ++i) add([&] { return vector_layer(); });
    const bool probabilities = below(3) == 0;
    layers_.push_back(Dense(2 + below(9), {.activation = probabilities ? softmax : activations::linear}));
    if (below(2) == 0) {
      loss = SparseCategoricalCrossentropy({.from_logits = !probabilities});
    } else {
      loss = CategoricalCrossentropy({.from_logits = !probabilities});
    }
    return Sequential(layers_);
  }

  std::int64_t below(int bound) { return random_.below(static_cast<std::uint32_t>(bound)); }

  Loss loss;

 private:
  template <typename Make>
  void add(Make make) {
    for (int attempt = 0; attempt < 50; ++attempt) {
      std::vector<Layer> longer = layers_;
      longer.push_back(make());
      try {
        if (Sequential(longer).output_shape().elements() > 6000) continue;
      } catch (const UsageError&) {
        continue;
      }
      layers_ = std::move(longer);
      return;
    }
  }

  int channels() { return std::array{1, 3, 5, 16, 32, 33}[static_cast<std::size_t>(below(6))]; }
  Size2D extent(int most) { return {1 + static_cast<int>(below(most)), 1 + static_cast<int>(below(most))}; }
  Padding padding() { return below(2) == 0 ? Padding::valid : Padding::same; }
  ActivationFunction function() {
    constexpr std::array functions = named_activations();
    return functions[static_cast<std::size_t>(below(static_cast<int>(functions.size())))];
  }

  Layer image_layer() {
    switch (below(10)) {
      case 0: return MaxPooling2D(extent(3), {.strides = below(2) == 0 ? Size2D(0) : extent(3), .padding = padding()});
      case 1:
        return AveragePooling2D(extent(3), {.strides = below(2) == 0 ? Size2D(0) : extent(3), .padding = padding()});
      case 2:
        return BatchNormalization({.momentum = random_.uniform(), .center = below(2) == 0, .scale = below(2) == 0});
      case 3: return Activation(function());
      case 4: return Dropout(below(4) == 0 ? 0 : 0.8 * random_.uniform());
      case 5: return below(2) == 0 ? Reshape({-1, 2, channels()}) : Reshape({2, -1, channels()});
      default: {
        const bool strided = below(2) == 0;
        return Conv2D(channels(), extent(4),
                      {.strides = strided ? extent(3) : Size2D(1),
                       .padding = padding(),
                       .dilation_rate = strided ? Size2D(1) : extent(3),
                       .activation = function(),
                       .use_bias = below(3) != 0});
      }
    }
  }

  Layer vector_layer() {
    switch (below(6)) {
      case 0:
        return BatchNormalization({.momentum = random_.uniform(), .center = below(2) == 0, .scale = below(2) == 0});
      case 1: return Activation(function());
      case 2: return Dropout(0.8 * random_.uniform());
      case 3: return Flatten();
      default: return Dense(1 + static_cast<int>(below(40)), {.activation = function(), .use_bias = below(3) != 0});
    }
  }

  RandomStream random_;
  std::vector<Layer> layers_;
};

}  // namespace

TEST_CASE("random models match the reference") {
  const char* asked = std::getenv("LOCKSTEP_TEST_MODELS");  // NOLINT(concurrency-mt-unsafe)
  const int models = asked != nullptr ? std::atoi(asked) : 120;
  std::set<std::string> seen{"Rescaling"};  // may only come first; see layers_test
  for (int seed = 1; seed <= models; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    const Sequential model = draw.model();
    INFO("model " << seed << ", " << keras_name(draw.loss) << ": " << describe(model));
    CheckedModelOptions options{.loss = draw.loss, .seed = static_cast<std::uint64_t>(seed)};
    if (seed % 2 == 0) options.cache_bytes = 1;  // microbatches of one example
    if (seed % 4 == 1) options.cache_bytes = static_cast<std::size_t>(1) << (10 + draw.below(8));  // or of a few
    options.tolerance = 1e-4;  // chains of normalizations over few values amplify rounding errors
    options.pixels = draw.below(2) == 0 ? Pixels::bytes : Pixels::floats;
    options.plan.chunk_bytes = static_cast<std::size_t>(1) << (8 + draw.below(12));
    options.plan.bucket_bytes = static_cast<std::size_t>(1) << (8 + draw.below(10));
    options.plan.update_lag = static_cast<std::size_t>(draw.below(3));
    CheckedModel checked_model(model, options);
    checked_model.train({8});
    checked_model.infer(static_cast<std::size_t>(1 + draw.below(8)));
    checked_model.train({1 + draw.below(3), draw.below(3), 2});
    checked_model.train({8});
    checked_model.infer(8);
    for (const LayerInfo& layer : model.layers()) seen.insert(layer.class_name);
  }
  if (models < 100) return;
  for (const std::string_view layer : layer_class_names()) {
    CAPTURE(layer);
    CHECK(seen.count(std::string(layer)) == 1);
  }
}
