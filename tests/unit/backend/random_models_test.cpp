// Random models, which find combinations of layers that no other test has. LOCKSTEP_TEST_MODELS sets their number. One
// file, because chains and graphs draw the same layers.
#include "checked_model.hpp"
#include "core/random.hpp"
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "support/catch.hpp"
#include "support/draw_graph.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
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
    has_all_kinds_ = below(2) == 0;
    if (below(4) == 0) return sequence_model();
    if (below(6) == 0) layers_ = {Input({(5 + below(5)) * (5 + below(5)) * 4}), Reshape({-1, 2, 2})};
    const int middle = 1 + below(5);
    for (int i = 0; i < middle; ++i) add([&] { return image_layer(); });
    if (!is_gpu() && below(3) == 0) {
      layers_.push_back(below(2) == 0 ? Layer(Reshape({-1, 1})) : Layer(Flatten()));
      for (int i = 0; i < 3; ++i) add([&] { return cpu_sequence_layer(); });
      layers_.push_back(Flatten());
    }
    if (below(5) == 0) {  // the output is an image, or what pooling left of it
      loss = MeanSquaredError();
      if (below(2) == 0) add([&] { return image_layer(); });
      if (below(3) == 0) add([&] { return Layer(Flatten()); });
      return Sequential(layers_);
    }
    add([&]() -> Layer {
      if (below(2) > 0) return Flatten();
      if (has_all_kinds_ && below(2) == 0) return GlobalMaxPooling2D();
      return GlobalAveragePooling2D();
    });
    return vector_model();
  }

  std::int64_t below(int bound) { return random_.below(static_cast<std::uint32_t>(bound)); }

  Loss loss;

 private:
  /// Ends a model whose last layer gives a vector.
  Sequential vector_model() {
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

  Sequential sequence_model() {
    layers_ = {Input({12 + below(20), channels()})};
    const int middle = 1 + below(4);
    for (int i = 0; i < middle; ++i) add([&] { return sequence_layer(); });
    add([&]() -> Layer {
      if (below(3) == 0) return Flatten();
      if (has_all_kinds_ && below(2) == 0) return GlobalMaxPooling1D();
      return GlobalAveragePooling1D();
    });
    return vector_model();
  }

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

  /// A number of groups that divides the channels of the model so far, most often one or all.
  int groups() {
    const Shape shape =
        layers_.size() > 1 ? Sequential(layers_).output_shape() : std::get<Input>(layers_.front()).shape;
    const std::int64_t last = shape[shape.rank() - 1];
    const int groups = below(3) == 0 ? static_cast<int>(last) : 1 + static_cast<int>(below(4));
    return has_all_kinds_ && below(2) == 0 && last % groups == 0 ? groups : 1;
  }

  Layer sequence_layer() {
    const bool strided = below(2) == 0;
    const Size1D strides = strided ? 1 + static_cast<int>(below(3)) : 1;
    const Size1D dilation = strided ? 1 : 1 + static_cast<int>(below(3));
    const int size = 1 + static_cast<int>(below(4));
    switch (below(8)) {
      case 0: return MaxPooling1D(size, {.strides = strides, .padding = padding()});
      case 1: return AveragePooling1D(size, {.strides = strides, .padding = padding()});
      case 2: return BatchNormalization({.momentum = random_.uniform()});
      case 3:
        if (!has_all_kinds_) return Activation(function());
        return SeparableConv1D(channels(), size,
                               {.strides = strides,
                                .padding = padding(),
                                .dilation_rate = dilation,
                                .depth_multiplier = 1 + static_cast<int>(below(2)),
                                .activation = function(),
                                .use_bias = below(3) != 0});
      case 4:
        if (!has_all_kinds_) return Activation(function());
        return DepthwiseConv1D(size, {.strides = strides,
                                      .padding = padding(),
                                      .depth_multiplier = 1 + static_cast<int>(below(2)),
                                      .dilation_rate = dilation,
                                      .activation = function(),
                                      .use_bias = below(3) != 0});
      case 5:
        if (!has_all_kinds_) return Activation(function());
        return Conv1DTranspose(channels(), size,
                               {.strides = strides,
                                .padding = padding(),
                                .dilation_rate = dilation,
                                .activation = function(),
                                .use_bias = below(3) != 0});
      default: {
        const int g = groups();
        return Conv1D(g * (1 + static_cast<int>(below(4))), size,
                      {.strides = strides,
                       .padding = below(3) == 0 ? Padding::causal : padding(),
                       .dilation_rate = dilation,
                       .groups = g,
                       .activation = function(),
                       .use_bias = below(3) != 0});
      }
    }
  }

  Layer convolution() {
    const bool strided = below(2) == 0;
    const Size2D strides = strided ? extent(3) : Size2D(1);
    const Size2D dilation = strided ? Size2D(1) : extent(3);
    const Padding padded = padding();
    switch (has_all_kinds_ ? below(6) : 5) {
      case 0:
        return DepthwiseConv2D(extent(6), {.strides = strides,
                                           .padding = padded,
                                           .depth_multiplier = below(3) == 0 ? 2 : 1,
                                           .dilation_rate = dilation,
                                           .activation = function(),
                                           .use_bias = below(3) != 0});
      case 1:
        return SeparableConv2D(channels(), extent(4),
                               {.strides = strides,
                                .padding = padded,
                                .dilation_rate = dilation,
                                .depth_multiplier = below(3) == 0 ? 2 : 1,
                                .activation = function(),
                                .use_bias = below(3) != 0});
      case 2:
        return Conv2DTranspose(channels(), extent(4),
                               {.strides = strides,
                                .padding = padded,
                                .dilation_rate = dilation,
                                .activation = function(),
                                .use_bias = below(3) != 0});
      default: {
        const int g = groups();
        return Conv2D(g == 1 ? channels() : g * (1 + static_cast<int>(below(3))), extent(4),
                      {.strides = strides,
                       .padding = padded,
                       .dilation_rate = dilation,
                       .groups = g,
                       .activation = function(),
                       .use_bias = below(3) != 0});
      }
    }
  }

  /// Layers that GPUs refuse.
  Layer cpu_layer() {
    const double rate = 0.8 * random_.uniform();
    switch (below(21)) {
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
      case 16: return CenterCrop(2 + 2 * margin(), 2 + 2 * margin());
      case 17:
        return Resizing(4 + 2 * margin(), 4 + 2 * margin(), {.interpolation = below(2) == 0 ? "nearest" : "bilinear"});
      case 18: return RMSNormalization({.epsilon = 0.1});
      case 19: return AlphaDropout(rate);
      default:
        if (below(2) == 0) return ActivityRegularization({.l1 = 0.01 * rate, .l2 = 0.01 * rate});
        return Dropout(rate, {.noise_shape = {1, 1, 1}});
    }
  }

  /// Layers of sequences or vectors that GPUs refuse.
  Layer cpu_sequence_layer() {
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
    if (!is_gpu() && below(2) == 0) return cpu_layer();
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
      case 3: return below(4) == 0 ? Layer(Identity()) : Layer(Activation(function()));
      case 4: return Dropout(below(4) == 0 ? 0 : 0.8 * random_.uniform());
      case 5: return below(2) == 0 ? Reshape({-1, 2, channels()}) : Reshape({2, -1, channels()});
      default: return convolution();
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
  bool has_all_kinds_ = true;  ///< else only the convolutions and poolings that GPUs have
};

int number_of_models() {
  const char* asked = std::getenv("LOCKSTEP_TEST_MODELS");  // NOLINT(concurrency-mt-unsafe)
  return asked != nullptr ? std::atoi(asked) : 120;
}

/// Makes one layer in three not trainable.
template <typename Drawing>
void freeze_some(Architecture& model, Drawing& draw) {
  const std::vector<LayerInfo> layers = model.layers();
  for (const LayerInfo& layer : layers) {
    if (draw.below(3) == 0) model.set_trainable(layer.name, false);
  }
}

/// The layers that only DrawGraph draws.
std::set<std::string> only_in_graphs() {
  std::set<std::string> names{"Add",     "Subtract", "Multiply",   "Average",
                              "Maximum", "Minimum",  "Sequential", "Functional"};
  if (!is_gpu()) names.insert({"Concatenate", "CustomScaleLayer", "Dot"});
  return names;
}

}  // namespace

TEST_CASE("random graphs match the reference") {
  const int models = number_of_models();
  std::set<std::string> seen;
  for (int seed = 1; seed <= models; ++seed) {
    DrawGraph draw(static_cast<std::uint64_t>(seed), is_gpu());
    Architecture model = draw.model();
    if (seed % 3 == 0) freeze_some(model, draw);
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
  for (const std::string& layer : only_in_graphs()) {
    CAPTURE(layer);
    CHECK(seen.count(layer) == 1);
  }
}

TEST_CASE("random models match the reference") {
  const int models = number_of_models();
  std::set<std::string> seen = only_in_graphs();
  // These must come first; see shape_layers_test.
  seen.insert({"Embedding", "CategoryEncoding", "Discretization", "RandomFlip", "RandomTranslation", "RandomRotation",
               "RandomZoom", "RandomContrast", "RandomBrightness"});
  for (int seed = 1; seed <= models; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    Sequential model = draw.model();
    if (seed % 3 == 0) freeze_some(model, draw);
    INFO("model " << seed << ", " << keras_name(draw.loss) << ": " << describe(model));
    CheckedModelOptions options{.loss = draw.loss, .seed = static_cast<std::uint64_t>(seed)};
    if (seed % 2 == 0) options.cache_bytes = 1;  // microbatches of one example
    if (seed % 4 == 1) options.cache_bytes = static_cast<std::size_t>(1) << (10 + draw.below(8));  // or of a few
    options.tolerance = 1e-4;  // chains of normalizations over few values amplify rounding errors
    options.pixels = draw.below(2) == 0 ? Pixels::bytes : Pixels::floats;
    options.plan.chunk_bytes = static_cast<std::size_t>(1) << (8 + draw.below(12));
    options.plan.bucket_bytes = static_cast<std::size_t>(1) << (8 + draw.below(10));
    options.plan.update_lag = static_cast<std::size_t>(draw.below(3));
    for (const LayerInfo& layer : model.layers()) seen.insert(layer.class_name);
    CheckedModel checked_model(model, options);
    try {
      checked_model.train({8});
    } catch (const UsageError& error) {
      if (is_refusal_of_gpus(error)) continue;
      throw;
    }
    checked_model.infer(static_cast<std::size_t>(1 + draw.below(8)));
    checked_model.train({1 + draw.below(3), draw.below(3), 2});
    checked_model.train({8});
    checked_model.infer(8);
  }
  if (models < 100) return;
  if (is_gpu()) return;
  for (const std::string_view layer : layer_class_names()) {
    CAPTURE(layer);
    CHECK(seen.count(std::string(layer)) == 1);
  }
}
