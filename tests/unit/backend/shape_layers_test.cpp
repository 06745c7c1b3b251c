// The layers that move, repeat, drop or scale elements against the reference, in every layout: outputs, loss and the
// gradients of all weights. CPUs only; GPUs refuse most of these layers.
#include "backend/make_backend.hpp"
#include "checked_model.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <optional>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr auto tanh_ = activations::tanh;

void check(const Architecture& model, const CheckedModelOptions& options = {}) {
  INFO(describe(model));
  CheckedModel checked_model(model, options);
  checked_model.train({8});
  checked_model.infer(5);
  checked_model.train({3, 2});
  checked_model.infer(8);
  checked_model.train({1});
}

/// The layers between convolutions, and before a Dense, with 3 channels and with whole blocks, in each layout.
void check_images(const std::vector<Layer>& layers, const CheckedModelOptions& options = {}) {
  for (const int channels : {3, 16, 32}) {
    for (const std::optional<Layout> layout :
         {std::optional<Layout>{}, std::optional(Layout::nChw8c), std::optional(Layout::nhwc)}) {
      if (layout && channels == 3) continue;
      CheckedModelOptions with = options;
      with.layout = layout;
      with.threads = channels == 16 ? 2 : 1;
      std::vector<Layer> all{Input({7, 6, 2}), Conv2D(channels, 2, {.activation = tanh_})};
      all.insert(all.end(), layers.begin(), layers.end());
      std::vector<Layer> last = all;
      for (const Layer& layer : {Layer(Conv2D(5, 2, {.padding = "same"})), Layer(Flatten()), Layer(Dense(3))}) {
        all.push_back(layer);
      }
      for (const Layer& layer : {Layer(Flatten()), Layer(Dense(3))}) last.push_back(layer);
      check(Sequential(all), with);
      check(Sequential(last), with);
    }
  }
}

}  // namespace

TEST_CASE("padding and cropping match the reference in every layout") {
  check_images({ZeroPadding2D()});
  check_images(
      {ZeroPadding2D({0, 1, 0, 1}), Conv2D(16, 3, {.strides = 2, .activation = relu}), ZeroPadding2D({2, 0, 1, 3})});
  check_images({Cropping2D({1, 2, 0, 1})});
  check_images({ZeroPadding2D(1), MaxPooling2D(3, {.strides = 2}), Cropping2D({0, 1, 1, 0})});
  check_images({CenterCrop(3, 2)});
  check_images({CenterCrop(6, 4), Conv2D(16, 2, {.padding = "same"}), CenterCrop(5, 1)});
  check(Sequential{Input({5, 4, 3}), ZeroPadding2D(1), Conv2D(16, 3), Flatten(), Dense(3)}, {.pixels = Pixels::bytes});
  check(Sequential{Input({9, 2}), Dense(4), ZeroPadding1D({2, 1}), Activation(tanh_), Cropping1D({1, 3}), Flatten(),
                   Dense(3)});
}

TEST_CASE("padding passes a gradient on to a normalization that derives its own relu6") {
  const Tensor x = Input({6, 6, 3});
  const Tensor y = Activation(activations::relu6)(BatchNormalization()(Conv2D(16, 3, {.padding = Padding::same})(x)));
  const Tensor sum = Add()({Conv2D(16, 3, {.padding = Padding::same})(y), ZeroPadding2D(0)(y)});
  check(Functional(x, Dense(3)(Flatten()(sum))));
}

TEST_CASE("upsampling and resizing match the reference in every layout") {
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::bilinear}) {
    check_images({UpSampling2D(2, {.interpolation = interpolation})});
    check_images({MaxPooling2D(2), UpSampling2D({3, 1}, {.interpolation = interpolation}), Activation(tanh_)});
    check_images({Resizing(9, 3, {.interpolation = interpolation}), Activation(tanh_)});
    check_images({Resizing(2, 11, {.interpolation = interpolation}), Resizing(6, 5)});
  }
  // Sizes whose nearest pixel is a tie that TensorFlow rounds down.
  check(Sequential{Input({224, 1, 2}), Resizing(48, 1, {.interpolation = "nearest"}), Flatten(), Dense(3)});
  check(Sequential{Input({32, 1, 2}), Resizing(227, 1, {.interpolation = "nearest"}), Flatten(), Dense(3)});
  check(Sequential{Input({5, 3}), Dense(2), UpSampling1D(3), Flatten(), Dense(3)});
  check(Sequential{Input({6}), Dense(4, {.activation = tanh_}), RepeatVector(3), Dense(5), Flatten(), Dense(3)});
}

TEST_CASE("Permute and Dense of any rank match the reference") {
  check_images({Permute({2, 1, 3})});
  check_images({Permute({3, 1, 2}), Conv2D(16, 2, {.padding = "same"}), Permute({1, 3, 2})});
  check_images({Dense(16, {.activation = relu}), Activation(tanh_)});
  check_images({BatchNormalization(), Dense(5, {.activation = tanh_, .use_bias = false}), Dense(16)});
  check(Sequential{Input({3, 4}), Permute({2, 1}), Dense(5, {.activation = sigmoid}), Dense(7), Flatten(), Dense(3)});
  check(Sequential{Input({2, 3, 2, 4}), Dense(5, {.activation = tanh_}), Permute({4, 1, 3, 2}), Dense(3), Flatten(),
                   Dense(3)},
        {.plan = {.chunk_bytes = 64, .bucket_bytes = 256}});
  check(Sequential{Input({5, 4}), Dense(6, {.activation = tanh_}), Dense(2)}, {.loss = MeanSquaredError()});
}

TEST_CASE("activation layers match the reference in every layout") {
  check_images({ReLU({.max_value = 6.0}), Conv2D(16, 1, {.activation = activations::relu6})});
  check_images({ReLU({.max_value = 0.5, .negative_slope = 0.25, .threshold = 0.125})});
  check_images({ReLU({.negative_slope = 0.5}), ReLU()});
  check_images({LeakyReLU(), ELU(0.5)});
  check_images({BatchNormalization(), LeakyReLU(0), Softmax()});
  check_images({PReLU({.alpha_initializer = "random_normal"})});
  check_images({PReLU({.alpha_initializer = "ones", .shared_axes = {1, 2}}), MaxPooling2D()});
  check_images({PReLU({.alpha_initializer = "random_uniform", .shared_axes = {3}})});
  check(Sequential{Input({6}), Dense(7), PReLU({.alpha_initializer = "random_normal"}), Dense(3)});
}

TEST_CASE("Dot along any axes of tensors of any rank matches the reference") {
  struct Case {
    Shape first, second;
    DotAxes axes;
  };
  const std::vector<Case> cases{{{4}, {4}, 1},
                                {{4}, {4}, -1},
                                {{3, 4}, {5, 4}, 2},
                                {{3, 4}, {4, 5}, {2, 1}},
                                {{4}, {4, 5}, 1},
                                {{3, 4}, {4}, -1},
                                {{4, 3}, {4, 5}, {1, -2}},
                                {{4, 2, 3}, {5, 4}, {1, 2}},
                                {{2, 4, 3}, {2, 5, 4}, {2, 3}},
                                {{2, 3, 4}, {4, 2, 3}, {-1, 1}},
                                {{6, 1}, {1, 6}, {2, 1}}};
  for (const Case& c : cases) {
    for (const bool normalizes : {false, true}) {
      const Tensor input = Input({6});
      const auto made = [&input](const Shape& shape, ActivationFunction function) {
        return Reshape(shape)(Dense(static_cast<int>(shape.elements()), {.activation = function})(input));
      };
      const Tensor dot = Dot(c.axes, {.normalize = normalizes})({made(c.first, tanh_), made(c.second, relu)});
      check(Functional(input, Dense(3)(Flatten()(dot))), {.threads = normalizes ? 2 : 1});
    }
  }
  const Tensor image = Input({6, 5, 2});
  const Tensor x = Conv2D(16, 2, {.activation = tanh_})(image);
  const Tensor scores = Activation(softmax)(Dot(3)({x, x}));  // of each pixel with each
  check(Functional(image, Dense(3)(Flatten()(Dot({3, 1}, {.normalize = true})({scores, x})))));
  check(Functional(image, Dot({1, 1})({Flatten()(x), Flatten()(x)})), {.loss = MeanSquaredError()});
  check(Functional(image, Dense(3)(Flatten()(Dot(2)({image, image})))));
}

TEST_CASE("Discretization and CategoryEncoding match the reference") {
  const std::vector<double> boundaries{-0.5, 0, 0.25, 1};
  check(Sequential{Input({5}), Discretization(boundaries), Dense(3)});
  check(Sequential{Input({5}), Discretization(boundaries), Embedding(5, 3), Flatten(), Dense(3)});
  check(Sequential{Input({5, 4}), Discretization(boundaries), Reshape({20}), CategoryEncoding(5), Dense(3)});
  for (const OutputMode mode : {OutputMode::one_hot, OutputMode::multi_hot, OutputMode::count}) {
    check(Sequential{Input({5}), Discretization(boundaries, {.output_mode = mode}), Flatten(), Dense(3)});
    check(Sequential{Input({5}), CategoryEncoding(256, {.output_mode = mode}), Flatten(), Dense(3)},
          {.pixels = Pixels::bytes});
  }
  check(Sequential{Input({5, 1}), CategoryEncoding(256, {.output_mode = OutputMode::one_hot}), Conv1D(3, 2), Flatten(),
                   Dense(3)},
        {.pixels = Pixels::bytes});
  const Tensor input = Input({5});
  const Tensor bins = Discretization(boundaries)(input);
  const Tensor counts = CategoryEncoding(5, {.output_mode = OutputMode::count})(bins);
  check(Functional(input, Dense(3)(Concatenate()({counts, Flatten()(Embedding(5, 2)(bins)), Dense(4)(input)}))));
}

TEST_CASE("augmentations change images as the reference does, in training only") {
  std::vector<Layer> layers;
  for (const FlipMode mode : {FlipMode::horizontal, FlipMode::vertical, FlipMode::horizontal_and_vertical}) {
    layers.emplace_back(RandomFlip({.mode = mode}));
  }
  for (const FillMode fill : {FillMode::reflect, FillMode::constant, FillMode::nearest}) {
    for (const Interpolation interpolation : {Interpolation::bilinear, Interpolation::nearest}) {
      const WarpOptions options{.fill_mode = fill, .interpolation = interpolation, .fill_value = 0.5};
      layers.emplace_back(RandomTranslation(0.4, {-0.2, 0.9}, options));
      layers.emplace_back(RandomRotation({-0.45, 0.3}, options));
      layers.emplace_back(
          RandomZoom({-0.5, 0.9}, {.fill_mode = fill, .interpolation = interpolation, .fill_value = 0.5}));
    }
  }
  layers.emplace_back(RandomZoom(0.3, {.width_factor = RandomFactor(0.1, 0.6)}));
  layers.emplace_back(RandomContrast(0.8, {.value_range = {-1, 1.5}}));
  layers.emplace_back(RandomContrast({0.25, 0.5}, {.value_range = {-2, 2}}));
  layers.emplace_back(RandomBrightness({-0.1, 0.4}, {.value_range = {-2, 2}}));
  int turn = 0;
  for (const Layer& layer : layers) {
    ++turn;
    CheckedModelOptions options{.threads = 1 + turn % 2, .seed = static_cast<std::uint64_t>(turn)};
    if (turn % 3 == 0) options.cache_bytes = 1;  // microbatches of one example
    check(Sequential(
              std::vector<Layer>{Input({7, 6, 2}), layer, Conv2D(5, 2, {.activation = tanh_}), Flatten(), Dense(3)}),
          options);
  }
  check(Sequential{Input({7, 6, 2}), RandomFlip(), Rescaling(0.5), RandomRotation(0.1), Conv2D(16, 2), Flatten(),
                   Dense(3)},
        {.pixels = Pixels::bytes});
  CHECK_THROWS_AS(CheckedModel(Sequential{Input({7, 6, 2}), Conv2D(5, 2), RandomFlip(), Flatten(), Dense(3)}),
                  UsageError);
  CHECK_THROWS_AS((Sequential{Input({7, 6, 2}), RandomZoom({-1, 0})}), UsageError);
  CHECK_THROWS_AS((Sequential{Input({7, 6, 2}), RandomContrast(0.1, {.value_range = {1}})}), UsageError);
}

TEST_CASE("CategoryEncoding tells an index that is none") {
  CheckedModel model(Sequential{Input({5}), CategoryEncoding(100), Dense(3)}, {.pixels = Pixels::bytes});
  CHECK_THROWS_AS(model.infer(8), DataError);
}

TEST_CASE("Identity is its input wherever it is called") {
  check_images({Identity(), BatchNormalization(), Identity(), Identity()});
  check(Sequential{Input({4, 4, 3}), Identity(), Rescaling(0.5), Conv2D(16, 2, {.activation = tanh_}), Flatten(),
                   Identity(), Dense(3), Identity()},
        {.pixels = Pixels::bytes});
  check(Sequential{Input({6}), Dense(3, {.activation = softmax}), Identity()},
        {.loss = SparseCategoricalCrossentropy()});
  const Tensor input = Input({6, 5, 2});
  const Tensor x = Conv2D(16, 2, {.activation = tanh_})(input);
  const Tensor same = Identity()(x);
  const Tensor merged = Add()({same, Conv2D(16, 1)(Identity()(x)), x, Identity()(same)});
  check(Functional(input, Dense(3)(Flatten()(Identity()(merged)))));
}

TEST_CASE("constants by channel match the reference in every layout") {
  check_images({Rescaling(0.5, -0.25)});
  check_images({Normalization({.mean = {0.25}, .variance = {0.5}})});
  check(Sequential{Input({4, 4, 3}), Normalization({.mean = {100, 120, 140}, .variance = {900, 1600, 2500}}),
                   Conv2D(16, 2, {.activation = tanh_}), Flatten(), Dense(3)},
        {.pixels = Pixels::bytes});
  check(Sequential{Input({6}), Dense(3, {.activation = tanh_}),
                   Normalization({.mean = {0.5, 1, 2}, .variance = {4, 1, 0.25}, .invert = true}), Dense(3)});
  check_images({Normalization()});
  check(Sequential{Input({6}), Dense(3, {.activation = tanh_}), Normalization({.invert = true}), Dense(3)});
  check_images({Conv2D(16, 1), LayerScale(0.5, 16)});
  check(Sequential{Input({5, 2}), Dense(4), LayerScale(1e-2, 4), Flatten(), Dense(3)});
}

TEST_CASE("normalizations within an example match the reference") {
  check_images({LayerNormalization(), Activation(tanh_)});
  check_images({Conv2D(16, 2), GroupNormalization(4), GroupNormalization(-1, {.epsilon = 0.1, .center = false})});
  check_images({GroupNormalization(1, {.scale = false})});
  check_images({UnitNormalization(), LayerNormalization({.center = false, .scale = false})});
  check_images({RMSNormalization(), Conv2D(16, 1), RMSNormalization({.epsilon = 0.5})});
  check(Sequential{Input({7, 4}), RMSNormalization(), Dense(8), Flatten(), RMSNormalization(), Dense(3)});
  check(Sequential{Input({7, 4}), LayerNormalization({.epsilon = 1e-6}), Dense(8, {.activation = tanh_}),
                   UnitNormalization(), GroupNormalization(2), Flatten(), LayerNormalization(), Dense(3)});
}

TEST_CASE("Dropout of several elements at once, and noise, match the reference") {
  const CheckedModelOptions options{.seed = 77};
  check_images({Dropout(0.5, {.noise_shape = {1, 1, 1}})}, options);
  check_images({Dropout(0.4, {.noise_shape = {6, 1, 1}}), SpatialDropout2D(0.3)}, options);
  check_images({AlphaDropout(0.4, {.noise_shape = {1, 1, 1}}), Conv2D(16, 1), AlphaDropout(0.2)}, options);
  check_images({GaussianNoise(0.5), Conv2D(16, 1), GaussianDropout(0.3)}, options);
  check(Sequential{Input({6, 3}), Dense(8), SpatialDropout1D(0.5), GaussianDropout(0.5), Flatten(), Dense(3)}, options);
}

TEST_CASE("Embedding matches the reference, whatever indices repeat") {
  const CheckedModelOptions options{.pixels = Pixels::bytes};
  check(Sequential{Input({9}), Embedding(256, 5), Activation(tanh_), Flatten(), Dense(3)}, options);
  check(Sequential{Input({3, 2}), Flatten(), Embedding(256, 16), LayerNormalization(), Flatten(), Dense(3)},
        {.threads = 2, .pixels = Pixels::bytes});
  CheckedModel too_large(Sequential{Input({9}), Embedding(100, 5), Flatten(), Dense(3)}, options);
  CHECK_THROWS_AS(too_large.train({8}), DataError);
}

TEST_CASE("merges broadcast in every layout") {
  for (const int channels : {3, 16, 32}) {
    for (const std::optional<Layout> layout : {std::optional<Layout>{}, std::optional(Layout::nChw8c)}) {
      if (layout && channels == 3) continue;
      const CheckedModelOptions options{.threads = channels == 16 ? 2 : 1, .layout = layout};
      const auto model = [&](const auto& merge, const auto& other_of) {
        const Tensor input = Input({6, 5, 2});
        const Tensor x = Conv2D(channels, 2, {.activation = tanh_})(input);
        const Tensor merged = merge(x, other_of(x));
        return Functional(input, Dense(3)(Flatten()(Conv2D(8, 2)(merged))));
      };
      const auto excited = [&](const Tensor& x) {  // squeeze and excitation
        const Tensor squeezed = Reshape({1, 1, channels})(GlobalAveragePooling2D()(x));
        return Conv2D(channels, 1, {.activation = sigmoid})(Conv2D(4, 1, {.activation = relu})(squeezed));
      };
      const auto vector = [&](const Tensor& x) {
        return Reshape({1, 1, channels})(Dense(channels, {.activation = tanh_})(GlobalAveragePooling2D()(x)));
      };
      const auto row = [&](const Tensor& x) { return MaxPooling2D({5, 1})(x); };
      const auto plane = [&](const Tensor& x) { return Conv2D(1, 1, {.activation = tanh_})(x); };
      const auto multiply = [](const Tensor& a, const Tensor& b) { return Multiply()({a, b}); };
      const auto reverse = [](const Tensor& a, const Tensor& b) { return Subtract()({b, a}); };
      const auto add = [](const Tensor& a, const Tensor& b) { return Activation(tanh_)(Add()({a, b, b})); };
      const auto maximum = [](const Tensor& a, const Tensor& b) { return Maximum()({b, a}); };
      const auto average = [](const Tensor& a, const Tensor& b) { return Average()({a, b}); };
      check(model(multiply, excited), options);
      check(model(multiply, vector), options);
      check(model(reverse, excited), options);
      check(model(add, row), options);
      check(model(multiply, plane), options);
      check(model(maximum, vector), options);
      check(model(average, row), options);
    }
  }
}

TEST_CASE("concatenation matches the reference along every axis and in every layout") {
  for (const int channels : {3, 16, 32}) {
    for (const int axis : {-1, 1, 2, 3}) {
      const Tensor input = Input({6, 5, 2});
      const Tensor x = Conv2D(channels, 2, {.activation = tanh_})(input);
      const Tensor y = Conv2D(channels, 2, {.activation = relu})(input);
      const Tensor merged = Concatenate(axis)({x, y, x});
      check(Functional(input, Dense(3)(Flatten()(Conv2D(8, 2)(merged)))), {.threads = channels == 16 ? 2 : 1});
    }
    const Tensor input = Input({6, 5, 2});
    const Tensor x = Conv2D(channels, 2)(input);
    const Tensor dense =
        Concatenate()({x, Conv2D(16, 3, {.padding = "same"})(Activation(relu)(BatchNormalization()(x)))});
    check(Functional(input, Dense(3)(GlobalAveragePooling2D()(dense))));
    const Tensor vectors = Concatenate()({Flatten()(x), Dense(4)(Flatten()(x))});
    check(Functional(input, Dense(3)(vectors)));
    const Tensor scaled = CustomScaleLayer(0.25)({x, Conv2D(channels, 1)(x)});
    check(Functional(input, Dense(3)(Flatten()(Activation(relu)(scaled)))));
  }
  const Tensor input = Input({6, 3});
  const Tensor x = Dense(4, {.activation = tanh_})(input);
  check(Functional(input, Dense(3)(Flatten()(Concatenate(1)({x, Dense(4)(x)})))));
}

TEST_CASE("layers that move, repeat, drop or scale elements stay within tolerance in bfloat16") {
  try {
    make_cpu_backend(1)->require_bfloat16();
  } catch (const UsageError& error) {
    WARN("skipped: " << error.what());
    return;
  }
  const CheckedModelOptions near{.mixed_bfloat16 = true, .tolerance = 0.05};
  const auto around = [](std::vector<Layer> layers) {
    layers.insert(layers.begin(), {Input({7, 6, 2}), Conv2D(16, 2, {.activation = tanh_})});
    layers.insert(layers.end(), {Flatten(), Dense(3)});
    return Sequential(layers);
  };
  check(around({ZeroPadding2D(), UpSampling2D(2, {.interpolation = "bilinear"}), Cropping2D(1)}), near);
  check(around({Resizing(9, 4), CenterCrop(7, 3), AlphaDropout(0.1), RMSNormalization()}), near);
  // A sign that rounds differently changes the gradients of a few elements.
  check(around({LeakyReLU(), ELU(), PReLU({.alpha_initializer = "random_normal"}), Rescaling(0.5, 0.25)}),
        {.mixed_bfloat16 = true, .tolerance = 0.15});
  check(around({LayerNormalization(), GroupNormalization(4), LayerScale(0.5, 16), UnitNormalization()}), near);
  check(around({Dense(8, {.activation = activations::gelu}), Permute({2, 3, 1}), GaussianNoise(0.1)}), near);
  check(Sequential{Input({9}), Embedding(256, 16), Flatten(), Dense(3)},
        {.pixels = Pixels::bytes, .mixed_bfloat16 = true, .tolerance = 0.05});
  const Tensor input = Input({6, 5, 2});
  const Tensor x = Conv2D(16, 2, {.activation = tanh_})(input);
  const Tensor merged =
      Concatenate()({Multiply()({x, Conv2D(16, 1)(Reshape({1, 1, 16})(GlobalAveragePooling2D()(x)))}), x});
  check(Functional(input, Dense(3)(Flatten()(merged))), near);
  check(around({DepthwiseConv2D(2, {.depth_multiplier = 2}), SeparableConv2D(8, 2), Conv2DTranspose(5, 3)}), near);
  check(around({BatchNormalization(), Activation(tanh_), Conv2D(8, 2), SpatialDropout2D(0.2)}), near);
  check(around({Reshape({-1, 16}), Conv1D(8, 3), ActivityRegularization({.l2 = 0.01})}), near);
  check(Sequential{Input({7, 6, 3}), RandomFlip(), RandomContrast(0.2), Conv2D(16, 2, {.activation = tanh_}), Flatten(),
                   Dense(3)},
        near);
  check(Functional(input, Dense(3)(Dot(1)({Flatten()(x), Flatten()(Conv2D(16, 1)(x))}))), near);
}
