// Random models, which find combinations of layers that no other test has. LOCKSTEP_TEST_MODELS sets their number.
#include "checked_model.hpp"
#include "core/random.hpp"
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

bool is_gpu() {
  const char* device = std::getenv("LOCKSTEP_TEST_DEVICE");  // NOLINT(concurrency-mt-unsafe)
  return device != nullptr && std::string_view(device) == "cuda";
}

/// Draws one layer after the other. Redraws a layer that cannot follow the model so far.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed, RandomPurpose::test, 7) {}

  Sequential model() {
    layers_ = {Input({5 + below(5), 5 + below(5), channels()})};
    if (below(6) == 0) layers_ = {Input({(5 + below(5)) * (5 + below(5)) * 4}), Reshape({-1, 2, 2})};
    const int middle = 1 + below(5);
    for (int i = 0; i < middle; ++i) add([&] { return image_layer(); });
    if (!is_gpu() && below(3) == 0) {
      layers_.push_back(below(2) == 0 ? Layer(Reshape({-1, 1})) : Layer(Flatten()));
      for (int i = 0; i < 3; ++i) add([&] { return sequence_layer(); });
      layers_.push_back(Flatten());
    }
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
    const ActivationFunction drawn = functions[static_cast<std::size_t>(below(static_cast<int>(functions.size())))];
    return drawn == activations::exponential ? activations::tanh : drawn;  // several in a row overflow
  }

  /// Layers that GPUs refuse.
  Layer cpu_layer() {
    const double rate = 0.8 * random_.uniform();
    switch (below(17)) {
      case 0: return ZeroPadding2D({margin(), margin(), margin(), margin()});
      case 1: return Cropping2D({margin(), margin(), margin(), margin()});
      case 2: return UpSampling2D(extent(2), {.interpolation = below(2) == 0 ? "nearest" : "bilinear"});
      case 3: return Permute({2, 3, 1});
      case 4: return LayerNormalization({.epsilon = 0.1, .center = below(2) == 0, .scale = below(2) == 0});
      case 5: return GroupNormalization(below(2) == 0 ? 1 : -1, {.epsilon = 0.1});
      case 6: return UnitNormalization();
      case 7: return Normalization({.mean = {random_.normal()}, .variance = {0.5 + random_.uniform()}});
      case 8: return SpatialDropout2D(rate);
      case 9: return GaussianNoise(rate);
      case 10: return GaussianDropout(rate);
      case 11: return PReLU({.alpha_initializer = "random_normal"});
      case 12: return PReLU({.alpha_initializer = "random_normal", .shared_axes = {1, 2}});
      case 13: return LayerScale(random_.normal(), last_axis());
      case 14: return Rescaling(random_.normal(), random_.normal());
      case 15: return Dense(channels(), {.activation = function()});
      default: return Dropout(rate, {.noise_shape = {1, 1, 1}});
    }
  }

  /// Layers of (steps, channels), or of a vector.
  Layer sequence_layer() {
    switch (below(8)) {
      case 0: return ZeroPadding1D({margin(), margin()});
      case 1: return Cropping1D({margin(), margin()});
      case 2: return UpSampling1D(2);
      case 3: return SpatialDropout1D(0.8 * random_.uniform());
      case 4: return Permute({2, 1});
      case 5: return Dense(3, {.activation = function()});
      default: return RepeatVector(2);
    }
  }

  /// The number of channels of the model so far.
  [[nodiscard]] int last_axis() const {
    const Shape shape = layers_.size() > 1 ? Sequential(layers_).output_shape() : std::get<Input>(layers_[0]).shape;
    return static_cast<int>(shape[shape.rank() - 1]);
  }

  int margin() { return static_cast<int>(below(3)); }

  Layer image_layer() {
    if (!is_gpu() && below(3) == 0) return cpu_layer();
    switch (below(12)) {
      case 10: return ReLU({.max_value = 0.5 + random_.uniform(), .negative_slope = random_.uniform()});
      case 11:
        return below(3) == 0   ? Layer(LeakyReLU(random_.uniform()))
               : below(2) == 0 ? Layer(ELU(random_.uniform()))
                               : Layer(Softmax());
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

/// Draws graphs of images: forks, merges, tensors that several layers or one merge read several times.
class DrawGraph {
 public:
  explicit DrawGraph(std::uint64_t seed) : random_(seed, RandomPurpose::test, 8) {}

  Architecture model() {
    const int channels = std::array{2, 5, 8, 16, 32}[static_cast<std::size_t>(below(5))];
    const Tensor input = Input({4 + below(4), 4 + below(4), 1 + below(3)});
    std::vector<Tensor> tensors{convolution(channels)(input)};
    if (below(2) == 0) tensors.push_back(convolution(channels)(input));
    const int steps = 3 + static_cast<int>(below(6));
    for (int step = 0; step < steps; ++step)
      tensors.push_back(below(2) == 0 ? merge(tensors) : layer(tensors, channels));
    Tensor x = Dense(4, {.activation = activations::tanh})(Flatten()(tensors.back()));
    if (below(2) == 0) {  // a branch that joins behind the images
      x = Subtract()({x, Dense(4)(GlobalAveragePooling2D()(any_of(tensors)))});
    }
    return Functional(input, Dense(3)(x));
  }

  std::int64_t below(int bound) { return random_.below(static_cast<std::uint32_t>(bound)); }

 private:
  Conv2D convolution(int channels) {
    return {channels,
            1 + static_cast<int>(below(3)),
            {.padding = "same", .activation = below(2) == 0 ? activations::tanh : activations::linear}};
  }

  Tensor any_of(const std::vector<Tensor>& tensors) {
    return tensors[static_cast<std::size_t>(below(static_cast<int>(tensors.size())))];
  }

  Tensor layer(const std::vector<Tensor>& tensors, int channels) {
    const Tensor x = any_of(tensors);
    switch (below(7)) {
      case 0: return BatchNormalization({.momentum = 0.5})(x);
      case 1: return Activation(below(2) == 0 ? sigmoid : relu)(x);
      case 2: return Dropout(0.3)(x);
      case 3: return MaxPooling2D(2, {.strides = 1, .padding = "same"})(x);
      case 4: return AveragePooling2D(3, {.strides = 1, .padding = "same"})(x);
      case 5: return Reshape(x.shape())(Flatten()(x));
      default: return convolution(channels)(x);
    }
  }

  Tensor merge(const std::vector<Tensor>& tensors) {
    const std::vector<Tensor> two{any_of(tensors), any_of(tensors)};
    const std::vector<Tensor> three{two[0], two[1], any_of(tensors)};
    const std::vector<Tensor>& some = below(2) == 0 ? two : three;
    if (!is_gpu() && below(3) == 0) {  // joins channels, or repeats a pixel
      const int channels = static_cast<int>(two[0].shape()[2]);
      switch (below(3)) {
        case 0: return Conv2D(channels, 1)(Concatenate()(some));
        case 1: return CustomScaleLayer(0.5)(two);
        default:
          return Multiply()({two[0], Dense(channels, {.activation = sigmoid})(
                                         Reshape({1, 1, channels})(GlobalAveragePooling2D()(two[1])))});
      }
    }
    switch (below(6)) {
      case 0: return Subtract()(two);
      case 1: return Multiply()(two);
      case 2: return Average()(some);
      case 3: return Maximum()(some);
      case 4: return Minimum()(some);
      default: return Add()(some);
    }
  }

  RandomStream random_;
};

int number_of_models() {
  const char* asked = std::getenv("LOCKSTEP_TEST_MODELS");  // NOLINT(concurrency-mt-unsafe)
  return asked != nullptr ? std::atoi(asked) : 120;
}

/// The layers that only DrawGraph draws.
std::set<std::string> merges() {
  std::set<std::string> names{"Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"};
  if (!is_gpu()) names.insert({"Concatenate", "CustomScaleLayer"});
  return names;
}

}  // namespace

TEST_CASE("random graphs match the reference") {
  const int models = number_of_models();
  std::set<std::string> seen;
  for (int seed = 1; seed <= models; ++seed) {
    DrawGraph draw(static_cast<std::uint64_t>(seed));
    const Architecture model = draw.model();
    INFO("graph " << seed << ": " << describe(model));
    CheckedModelOptions options{.seed = static_cast<std::uint64_t>(seed), .tolerance = 1e-4};
    options.threads = 1 + seed % 2;
    options.plan.bucket_bytes = static_cast<std::size_t>(1) << (8 + draw.below(10));
    CheckedModel checked_model(model, options);
    checked_model.train({8});
    checked_model.infer(5);
    checked_model.train({1 + draw.below(3), draw.below(3), 2});
    checked_model.train({8});
    for (const LayerInfo& layer : model.layers()) seen.insert(layer.class_name);
  }
  if (models < 100) return;
  for (const std::string& layer : merges()) {
    CAPTURE(layer);
    CHECK(seen.count(layer) == 1);
  }
}

TEST_CASE("random models match the reference") {
  const int models = number_of_models();
  std::set<std::string> seen = merges();
  seen.insert("Embedding");  // must come first; see shape_layers_test
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
  if (is_gpu()) return;
  for (const std::string_view layer : layer_class_names()) {
    CAPTURE(layer);
    CHECK(seen.count(std::string(layer)) == 1);
  }
}
