// Names, shapes and parameters of models match Keras', and invalid models are rejected.
#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/models.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include "layers/window.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::string error_of(std::vector<Layer> layers) {
  try {
    const Sequential model(std::move(layers));
  } catch (const UsageError& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  FAIL("the model should have been rejected");
  return {};
}

void check_error(std::vector<Layer> layers, const std::vector<std::string>& parts) {
  const std::string message = error_of(std::move(layers));
  for (const std::string& part : parts) {
    INFO("looking for \"" << part << "\" in: " << message);
    CHECK(message.find(part) != std::string::npos);
  }
}

Shape output_of(Shape input, Layer layer) {
  return Sequential(std::vector<Layer>{Input(std::move(input)), std::move(layer)}).output_shape();
}

std::vector<std::string> names_of(const Sequential& model) {
  std::vector<std::string> names;
  for (const LayerInfo& layer : model.layers()) names.push_back(layer.name);
  return names;
}

}  // namespace

TEST_CASE("the two MNIST models have Keras' shapes and parameter counts") {
  const Sequential first = keras_mnist();
  CHECK(first.name() == "sequential");
  CHECK(first.count_parameters(true) == 2770634);
  CHECK(first.count_parameters(false) == 0);
  CHECK(first.input_shape() == Shape{28, 28});
  CHECK(first.output_shape() == Shape{10});
  CHECK(first.layers()[2].input_shape == Shape{28, 28, 1});
  CHECK(first.layers()[2].output_shape == Shape{26, 26, 32});
  CHECK(first.layers()[3].output_shape == Shape{21632});
  CHECK(names_of(first) == std::vector<std::string>{"input_layer", "reshape", "conv2d", "flatten", "dense", "dense_1"});
  CHECK(first.layers()[0].class_name == "InputLayer");
  CHECK(first.layers()[2].class_name == "Conv2D");

  const Sequential second = custom_training_mnist();
  CHECK(second.count_parameters(true) == 121930);
  CHECK(second.layers()[2].output_shape == Shape{13, 13, 32});
  CHECK(second.layers()[3].output_shape == Shape{11, 11, 64});
  CHECK(second.layers()[4].output_shape == Shape{5, 5, 64});
  CHECK(second.layers()[5].output_shape == Shape{1600});
  CHECK(names_of(second) == std::vector<std::string>{"input_layer", "conv2d", "max_pooling2d", "conv2d_1",
                                                     "max_pooling2d_1", "flatten", "dense", "dense_1"});
}

TEST_CASE("automatic names are Keras' snake case, counted per class, and explicit names stay") {
  const Sequential model{Input({4, 4, 2}, "pixels"), AveragePooling2D(1),
                         BatchNormalization(),       Dropout(0.5),
                         Activation(relu),           BatchNormalization({.name = "middle"}),
                         BatchNormalization(),       GlobalAveragePooling2D(),
                         Dense(3, {.name = "head"}), Dense(2)};
  CHECK(names_of(model) == std::vector<std::string>{"pixels", "average_pooling2d", "batch_normalization", "dropout",
                                                    "activation", "middle", "batch_normalization_1",
                                                    "global_average_pooling2d", "head", "dense"});
}

TEST_CASE("Rescaling keeps the shape, has no parameters and requires finite numbers") {
  const Sequential model{Input({28, 28}), Rescaling(1.0 / 255), Rescaling(2, -1), Flatten(), Dense(3)};
  CHECK(names_of(model) == std::vector<std::string>{"input_layer", "rescaling", "rescaling_1", "flatten", "dense"});
  CHECK(model.layers()[1].class_name == "Rescaling");
  CHECK(model.layers()[1].output_shape == Shape{28, 28});
  CHECK(model.layers()[1].parameters.empty());
  CHECK(std::get<Rescaling>(model.layers()[1].layer).offset == 0);
  const double nan = std::nan("");
  check_error({Input({4}), Rescaling(nan), Dense(3)}, {"'rescaling' (Rescaling)", "finite"});
  check_error({Input({4}), Rescaling(1, nan, "mine"), Dense(3)}, {"'mine' (Rescaling)", "finite"});
}

TEST_CASE("parameters have Keras' order and layout") {
  const Sequential model{Input({9, 8, 5}),
                         Conv2D(7, {3, 2}, {.use_bias = false, .kernel_initializer = Initializer::he_normal}),
                         BatchNormalization(),
                         BatchNormalization({.center = false, .scale = false}),
                         Flatten(),
                         Dense(4)};
  const auto& conv = model.layers()[1].parameters;
  REQUIRE(conv.size() == 1);
  CHECK(conv[0].name == "kernel");
  CHECK(conv[0].shape == Shape{3, 2, 5, 7});
  CHECK(conv[0].initializer == Initializer::he_normal);

  const auto& full = model.layers()[2].parameters;
  REQUIRE(full.size() == 4);
  const std::vector<std::string> names{"gamma", "beta", "moving_mean", "moving_variance"};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(full[i].name == names[i]);
    CHECK(full[i].shape == Shape{7});
    CHECK(full[i].trainable == (i < 2));
    CHECK(full[i].initializer == (i % 3 == 0 ? Initializer::ones : Initializer::zeros));
  }
  REQUIRE(model.layers()[3].parameters.size() == 2);
  CHECK(model.layers()[3].parameters[0].name == "moving_mean");

  const auto& dense = model.layers()[5].parameters;
  REQUIRE(dense.size() == 2);
  CHECK(dense[0].shape == Shape{7 * 7 * 7, 4});
  CHECK(dense[1].name == "bias");
  CHECK(dense[1].shape == Shape{4});
  CHECK(model.count_parameters(true) == 3 * 2 * 5 * 7 + 14 + 343 * 4 + 4);
  CHECK(model.count_parameters(false) == 28);
}

TEST_CASE("windows have Keras' output sizes and padding") {
  const auto convolved = [](const Conv2DOptions& options) { return output_of({10, 11, 1}, Conv2D(2, 3, options)); };
  CHECK(convolved({}) == Shape{8, 9, 2});
  CHECK(convolved({.padding = Padding::same}) == Shape{10, 11, 2});
  CHECK(convolved({.strides = 2}) == Shape{4, 5, 2});
  CHECK(convolved({.strides = 2, .padding = Padding::same}) == Shape{5, 6, 2});
  CHECK(convolved({.strides = {3, 1}}) == Shape{3, 9, 2});
  CHECK(convolved({.dilation_rate = {2, 4}}) == Shape{6, 3, 2});
  CHECK(convolved({.padding = Padding::same, .dilation_rate = 3}) == Shape{10, 11, 2});

  CHECK(output_of({13, 13, 3}, MaxPooling2D()) == Shape{6, 6, 3});
  CHECK(output_of({9, 8, 4}, DepthwiseConv2D(3, {.depth_multiplier = 2})) == Shape{7, 6, 8});
  CHECK(output_of({9, 8, 4}, SeparableConv2D(5, 3, {.strides = 2, .padding = "same"})) == Shape{5, 4, 5});
  CHECK(output_of({4, 5, 3}, Conv2DTranspose(2, 3, {.strides = 2, .padding = "same"})) == Shape{8, 10, 2});
  CHECK(output_of({4, 5, 3}, Conv2DTranspose(2, {3, 1}, {.strides = 2})) == Shape{9, 10, 2});
  CHECK(output_of({20, 3}, DepthwiseConv1D(3, {.strides = 2, .depth_multiplier = 2})) == Shape{9, 6});
  CHECK(output_of({20, 3}, Conv1DTranspose(2, 3, {.strides = 2, .padding = "same"})) == Shape{40, 2});
  CHECK(output_of({20, 3}, Conv1DTranspose(2, 3, {.strides = 2})) == Shape{41, 2});
  CHECK(output_of({9, 8, 3}, CenterCrop(4, 8)) == Shape{4, 8, 3});
  CHECK(output_of({9, 8, 3}, Resizing(4, 12)) == Shape{4, 12, 3});
  CHECK(output_of({20, 3}, Conv1D(2, 3, {.padding = "causal", .dilation_rate = 4})) == Shape{20, 2});
  CHECK(output_of({20, 3}, SeparableConv1D(2, 3, {.strides = 3})) == Shape{6, 2});
  CHECK(output_of({20, 3}, MaxPooling1D(3)) == Shape{6, 3});
  CHECK(output_of({20, 3}, GlobalMaxPooling1D({.keepdims = true})) == Shape{1, 3});
  CHECK(output_of({4, 5, 3}, GlobalAveragePooling2D({.keepdims = true})) == Shape{1, 1, 3});
  CHECK(output_of({13, 13, 3}, MaxPooling2D(2, {.padding = Padding::same})) == Shape{7, 7, 3});
  CHECK(output_of({13, 13, 3}, AveragePooling2D({3, 2}, {.strides = {1, 5}})) == Shape{11, 3, 3});
  CHECK(output_of({13, 12, 3}, GlobalAveragePooling2D()) == Shape{3});

  const Sequential model{Input({8, 8, 1}), MaxPooling2D({2, 3})};
  CHECK(std::get<MaxPooling2D>(model.layers()[1].layer).strides == Size2D(2, 3));

  const Window odd{.input = 5, .kernel = 2, .stride = 1, .dilation = 1, .padding = Padding::same};
  CHECK(odd.pad_before() == 0);
  CHECK(odd.pad_after() == 1);
  const Window strided{.input = 28, .kernel = 3, .stride = 2, .dilation = 1, .padding = Padding::same};
  CHECK(strided.output() == 14);
  CHECK(strided.pad_before() == 0);
  CHECK(strided.pad_after() == 1);
  const Window wide{.input = 4, .kernel = 1, .stride = 3, .dilation = 1, .padding = Padding::same};
  CHECK(wide.pad_total() == 0);
}

TEST_CASE("Reshape infers the unknown extent") {
  CHECK(output_of({28, 28}, Reshape({28, 28, 1})) == Shape{28, 28, 1});
  CHECK(output_of({28, 28}, Reshape({-1, 7})) == Shape{112, 7});
  CHECK(output_of({28, 28}, Reshape({-1})) == Shape{784});
  CHECK(output_of({6}, Activation(softmax)) == Shape{6});
  CHECK(output_of({6, 2}, Flatten()) == Shape{12});
}

TEST_CASE("invalid layer sequences are rejected with a remedy") {
  const Input image({8, 8, 1});

  CHECK(error_of({}) ==
        "the first layer of a model must be an Input, which gives the shape of one example, but there "
        "are no layers");
  check_error({Dense(3)}, {"must be an Input", "but it is a Dense"});
  check_error({image}, {"nothing but an Input"});
  check_error({image, Flatten(), Input({3})}, {"layer 2 is a second Input"});
  check_error({Input(Shape{}), Flatten()}, {"'input_layer'"});
  check_error({Input({8, 0}), Flatten()}, {"(8, 0)"});
  check_error({Input({3, -1}), Flatten()}, {"at least 1"});

  check_error({Input({28, 28}), Conv2D(4, 3)}, {"'conv2d'", "rank 3", "(28, 28)", "Reshape"});
  check_error({Input({28}), MaxPooling2D()}, {"'max_pooling2d'", "(28,)"});
  check_error({Input({28}), AveragePooling2D()}, {"'average_pooling2d'"});
  check_error({Input({28}), GlobalAveragePooling2D()}, {"'global_average_pooling2d'"});

  check_error({image, ZeroPadding2D({1, 0, -1, 0})}, {"'zero_padding2d'", "padding -1", "not negative"});
  check_error({Input({28}), ZeroPadding2D()}, {"'zero_padding2d'", "rank 3", "(28,)"});
  check_error({image, ZeroPadding1D()}, {"'zero_padding1d'", "rank 2", "(steps, channels)"});
  check_error({image, Cropping2D(4)}, {"'cropping2d'", "crop all of its input (8, 8, 1)"});
  check_error({image, CenterCrop(9, 8)}, {"'center_crop'", "height 9 and width 8", "(8, 8, 1) is smaller", "Resizing"});
  check_error({image, Resizing(0, 8)}, {"'resizing'", "height 0", "at least 1"});
  check_error({image, Conv1DTranspose(2, 3)}, {"'conv1d_transpose'", "rank 2", "(steps, channels)"});
  check_error({image, Permute({1, 2})}, {"'permute'", "dims [1, 2]", "(8, 8, 1)"});
  check_error({image, Permute({1, 2, 2})}, {"'permute'", "each axis from 1 to 3 once"});
  check_error({image, RepeatVector(2)}, {"'repeat_vector'", "rank 1"});
  check_error({image, GroupNormalization(2)}, {"'group_normalization'", "2 groups", "1 channels"});
  check_error({image, Normalization({.mean = {1, 2}, .variance = {1}})}, {"'normalization'", "2 means", "1 channels"});
  check_error({image, PReLU({.shared_axes = {4}})}, {"'p_re_lu'", "axis 4", "1 to 3"});
  check_error({image, AlphaDropout(0.1, {.noise_shape = {2, 1, 1}})}, {"'alpha_dropout'", "(None, 2, 1, 1)"});
  check_error({image, Dropout(0.1, {.noise_shape = {2, 1, 1}})}, {"'dropout'", "(None, 2, 1, 1)", "(8, 8, 1)"});
  check_error({image, Conv2D(4, 3, {.kernel_constraint = MaxNorm(1, {4})})},
              {"'conv2d'", "kernel", "axis 4", "(3, 3, 1, 4)"});
  check_error({image, Conv2D(4, 3, {.bias_constraint = UnitNorm({0, -1})})}, {"bias", "axis -1 twice"});
  check_error({image, Conv2D(4, 3, {.kernel_constraint = MaxNorm(-1)})}, {"kernel", "bound -1", "not negative"});
  check_error({image, Conv2D(4, 3, {.kernel_constraint = MinMaxNorm(2, 1)})}, {"min_value 2 above max_value 1"});
  CHECK_THROWS_AS(Constraint("no_norm"), UsageError);
  check_error({image, LeakyReLU(-1)}, {"'leaky_re_lu'", "negative_slope -1"});

  check_error({image, Conv2D(4, 9)}, {"9 x 9", "(8, 8, 1)", "same"});
  check_error({image, Conv2D(4, 3, {.dilation_rate = 4})}, {"9 x 9"});
  check_error({image, MaxPooling2D({1, 9})}, {"1 x 9"});
  check_error({image, Conv2D(4, 3, {.strides = {1, 2}, .dilation_rate = {2, 1}})},
              {"strides (1, 2)", "dilation_rate (2, 1)"});
  check_error({image, Conv2D(0, 3)}, {"filters 0"});
  check_error({image, Conv2D(1, {3, 0})}, {"kernel_size (3, 0)"});
  check_error({image, Conv2D(1, 3, {.strides = -1})}, {"strides (-1, -1)"});
  check_error({image, Conv2D(1, 3, {.dilation_rate = 0})}, {"dilation_rate (0, 0)"});
  check_error({image, MaxPooling2D(0)}, {"pool_size (0, 0)"});
  check_error({image, MaxPooling2D(2, {.strides = -2})}, {"strides (-2, -2)"});
  check_error({Input({3}), Dense(0)}, {"units 0"});

  check_error({image, Reshape({7, -1})}, {"(7, -1)", "64 elements"});
  check_error({image, Reshape({65})}, {"(65,)"});
  check_error({image, Reshape({-1, -1})}, {"only one dimension may be -1"});
  check_error({image, Reshape({0, 64})}, {"at least 1"});
  check_error({image, Reshape(Shape{})}, {"at least one dimension"});
  const std::int64_t huge = std::int64_t{1} << 40;
  check_error({image, Reshape({huge, huge})}, {"too large"});
  check_error({Input({huge, huge}), Flatten()}, {"more than the 2147483647 elements"});
  check_error({Input({1 << 16}), Dense(1 << 16)}, {"kernel (65536, 65536)"});

  for (const double rate : {-0.1, 1.0, 1.5, std::nan("")}) {
    check_error({image, Dropout(rate)}, {"'dropout'", "below 1"});
  }
  check_error({image, BatchNormalization({.momentum = 1.5})}, {"momentum"});
  check_error({image, BatchNormalization({.epsilon = 0})}, {"epsilon"});
  CHECK_NOTHROW(output_of({8, 8, 1}, Dropout(0)));
}

TEST_CASE("layer names are unique") {
  check_error({Input({3}), Dense(2, {.name = "a"}), Dropout(0.1, {.name = "a"})},
              {"two layers have the name 'a'", "Dropout"});
  check_error({Input({3}), Dense(2), Dense(2, {.name = "dense"})}, {"'dense'"});
  check_error({Input({3}), Dense(2, {.name = "a/b"})}, {"'a/b'", "'/'"});
  check_error({Input({3}), Dense(2, {.name = {"a\0b", 3}})}, {"'a...'", "NUL"});
}

TEST_CASE("activations, initializers, regularizers and padding may be Keras' strings") {
  const Conv2D conv(
      1, 2, {.padding = "same", .activation = "tanh", .kernel_initializer = "he_normal", .kernel_regularizer = "l1"});
  CHECK(conv.padding == Padding::same);
  CHECK(conv.activation == activations::tanh);
  CHECK(conv.kernel_initializer == Initializer::he_normal);
  CHECK(conv.kernel_regularizer == L1(0.01));
  CHECK(Activation("softmax").function == softmax);
  CHECK(MaxPooling2D(2, {.padding = "valid"}).padding == Padding::valid);
}

TEST_CASE("an unknown string is refused with the names that there are") {
  const auto begins = [](const std::string& text, const std::string& with) { return text.starts_with(with); };
  CHECK(begins(message_of<UsageError>([] { (void)Dense(1, {.activation = "rleu"}); }),
               "there is no activation 'rleu'; choose linear, relu, sigmoid, tanh, softmax, relu6, "));
  CHECK(begins(message_of<UsageError>([] { (void)Dense(1, {.kernel_initializer = "glorot"}); }),
               "there is no initializer 'glorot'; choose glorot_uniform, glorot_normal, he_uniform, "));
  CHECK(message_of<UsageError>([] { (void)Dense(1, {.kernel_regularizer = "l3"}); }) ==
        "there is no regularizer 'l3'; choose l1, l2 or l1_l2");
  check_error({Input({3}), Dense(2, {.kernel_regularizer = L2(-1)})}, {"'dense'", "-1", "kernel", "not negative"});
  CHECK(message_of<UsageError>([] { (void)MaxPooling2D(2, {.padding = "full"}); }) ==
        "there is no padding 'full'; choose valid, same or causal");
}

TEST_CASE("layers can be made trainable and not, by name or all") {
  Dense dense(3);
  dense.trainable = false;
  Sequential model{Input({4}), dense, BatchNormalization(), Dense(2, {.name = "head"})};
  CHECK(model.count_parameters(true) == 6 + 8);
  CHECK(model.count_parameters(false) == 15 + 6);
  model.set_trainable(false);
  CHECK(model.count_parameters(true) == 0);
  model.set_trainable("head", true);
  CHECK(model.count_parameters(true) == 8);
  model.set_trainable(true);
  CHECK(model.count_parameters(false) == 6);
  CHECK_THROWS_AS(model.set_trainable("tail", true), UsageError);
}

TEST_CASE("an Embedding of more rows than float32 tells apart is refused") {
  CHECK_NOTHROW(Sequential{Input({3}), Embedding(1 << 24, 1)});
  CHECK_THROWS_AS((Sequential{Input({3}), Embedding((1 << 24) + 1, 1)}), UsageError);
}
