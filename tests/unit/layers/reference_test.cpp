// Checks the reference: gradients by central differences, optimizers by hand-computed steps, replicas and Dropout by
// equivalent computations.
#include "support/reference.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using lockstep::reference::DropoutElement;
using lockstep::reference::ReferenceModel;
using lockstep::reference::Sums;
using lockstep::reference::Values;

namespace {

constexpr std::int64_t examples = 5;

/// Numbers in (-1, 1) without a pattern that could hide mistakes in indexing.
Values scattered(std::int64_t count, double phase) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(12.9898 * static_cast<double>(i) + phase);
  return values;
}

Values targets_for(const Architecture& model, const Loss& loss) {
  const std::int64_t classes = model.output_shape().elements();
  if (std::holds_alternative<SparseCategoricalCrossentropy>(loss)) {
    Values values;
    for (std::int64_t i = 0; i < examples; ++i) values.push_back(static_cast<double>((3 * i + 1) % classes));
    return values;
  }
  Values values = scattered(examples * classes, 0.5);
  for (double& value : values) value = (value + 1.1) / static_cast<double>(classes);
  return values;
}

/// Compares the gradients of all trainable weights with central differences of the loss.
void check_gradients(const Architecture& model, const Loss& loss, const std::vector<std::int64_t>& replicas = {},
                     std::int64_t global_batch = 8) {
  ReferenceModel reference(model, loss, SGD(), 11);
  for (std::size_t p = 0; p < reference.weights().size(); ++p) {  // biases and betas off zero, gammas off one
    Values& values = reference.weights()[p];
    const Values noise = scattered(static_cast<std::int64_t>(values.size()), static_cast<double>(p));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.2 * noise[i];
  }
  const Values inputs = scattered(examples * model.input_shape().elements(), 0.1);
  const Values targets = targets_for(model, loss);
  const auto loss_now = [&] {
    return reference.compute_gradients(inputs, targets, examples, global_batch, replicas).loss_sum /
           static_cast<double>(global_batch);
  };
  loss_now();
  const std::vector<Values> gradients = reference.penalized_gradients();

  std::size_t parameter = 0;
  double largest = 0;
  for (const LayerInfo& layer : model.layers()) {
    for (const ParameterInfo& info : layer.parameters) {
      const std::size_t p = parameter++;
      if (!info.trainable) continue;
      for (std::size_t i = 0; i < gradients[p].size(); ++i) {
        constexpr double h = 1e-5;
        double& weight = reference.weights()[p][i];
        const double before = weight;
        weight = before + h;
        const double above = loss_now();
        weight = before - h;
        const double below = loss_now();
        weight = before;
        INFO(layer.name << '/' << info.name << '[' << i << ']');
        CHECK(gradients[p][i] == Approx((above - below) / (2 * h)).epsilon(1e-5).margin(1e-8));
        largest = std::max(largest, std::abs(gradients[p][i]));
      }
    }
  }
  CHECK(largest > 1e-3);  // tiny gradients would test nothing
}

/// Puts the layer between two others, so that the first one's weight gradients check its input gradient.
Sequential around(const Layer& layer) {
  return Sequential(std::vector<Layer>{Input({5, 6, 2}), Conv2D(3, 2, {.activation = activations::tanh}), layer,
                                       Flatten(), Dense(4)});
}

const Loss sparse_logits = SparseCategoricalCrossentropy({.from_logits = true});

}  // namespace

TEST_CASE("gradients of image layers match central differences") {
  using activations::tanh;
  const std::vector<Layer> layers{
      Conv2D(3, 2),
      Conv2D(2, {3, 2}, {.padding = Padding::same, .activation = tanh}),
      Conv2D(2, 3, {.strides = {2, 3}, .padding = Padding::same, .use_bias = false}),
      Conv2D(2, 2, {.strides = {1, 2}}),
      Conv2D(2, {2, 3}, {.dilation_rate = 2, .activation = sigmoid}),
      Conv2D(2, 2, {.padding = Padding::same, .dilation_rate = {3, 1}, .activation = relu}),
      Conv2D(3, 1, {.activation = softmax}),
      Conv2D(6, 2, {.groups = 3}),
      DepthwiseConv2D(2, {.padding = "same", .depth_multiplier = 2, .activation = tanh}),
      SeparableConv2D(4, {3, 2}, {.strides = 2, .depth_multiplier = 2, .activation = sigmoid}),
      Conv2DTranspose(2, 3, {.strides = {2, 1}, .padding = "same", .activation = tanh}),
      Conv2DTranspose(2, {2, 3}, {.strides = 3}),
      RMSNormalization({.epsilon = 0.1}),
      AlphaDropout(0.4),
      Resizing(3, 7),
      MaxPooling2D(),
      MaxPooling2D({3, 2}, {.strides = 1, .padding = Padding::same}),
      AveragePooling2D({2, 3}),
      AveragePooling2D(3, {.strides = 2, .padding = Padding::same}),
      BatchNormalization(),
      BatchNormalization({.epsilon = 0.1, .center = false}),
      BatchNormalization({.scale = false}),
      Dropout(0.4),
      Activation(relu),
      Activation(sigmoid),
      Activation(tanh),
      Activation(softmax),
      Activation(activations::linear),
      Reshape({-1, 3}),
  };
  for (const Layer& layer : layers) check_gradients(around(layer), sparse_logits);
  check_gradients(Sequential{Input({4, 3, 2}), Conv2D(3, 2, {.activation = tanh}), GlobalAveragePooling2D(), Dense(3)},
                  sparse_logits);
  check_gradients(Sequential{Input({4, 3, 2}), Conv2D(3, 2, {.activation = tanh}), GlobalMaxPooling2D(), Dense(3)},
                  sparse_logits);
}

TEST_CASE("gradients of regularizers match central differences") {
  const std::vector<Layer> layers{
      Conv2D(3, 2, {.kernel_regularizer = L2(0.1), .bias_regularizer = L1(0.2)}),
      BatchNormalization({.beta_regularizer = L1L2(0.1, 0.3), .gamma_regularizer = L1(0.2)}),
      Conv2D(3, 2, {.activation = activations::tanh, .activity_regularizer = L1L2(0.1, 0.2)}),
      ActivityRegularization({.l1 = 0.1, .l2 = 0.2}),
  };
  for (const Layer& layer : layers) check_gradients(around(layer), sparse_logits, {}, examples);
}

TEST_CASE("gradients of dot products match central differences") {
  for (const bool normalizes : {false, true}) {
    const Tensor input = Input({4, 3});
    const Tensor x = Dense(5, {.activation = activations::tanh})(input);
    const Tensor y = Dense(4)(input);
    const Tensor dot = Dot({1, -2}, {.normalize = normalizes})({x, y});
    const Tensor again = Dot({2, 1}, {.normalize = normalizes})({dot, Flatten()(Dense(1)(input))});
    check_gradients(Functional(input, Dense(3)(again)), sparse_logits);
  }
}

TEST_CASE("gradients of layers of sequences match central differences") {
  const std::vector<Layer> layers{
      Conv1D(2, 3),
      Conv1D(4, 3, {.padding = "causal", .dilation_rate = 2, .groups = 2, .activation = sigmoid}),
      Conv1D(2, 2, {.strides = 2, .padding = "same", .use_bias = false}),
      SeparableConv1D(3, 3, {.depth_multiplier = 2, .activation = activations::tanh}),
      DepthwiseConv1D(3, {.depth_multiplier = 2, .dilation_rate = 2}),
      Conv1DTranspose(3, 2, {.strides = 3, .padding = "same"}),
      MaxPooling1D(3, {.strides = 2, .padding = "same"}),
      AveragePooling1D(2),
      GlobalMaxPooling1D({.keepdims = true}),
      GlobalAveragePooling1D(),
  };
  for (const Layer& layer : layers) {
    check_gradients(Sequential(std::vector<Layer>{Input({9, 2}), Conv1D(4, 2, {.activation = activations::tanh}), layer,
                                                  Flatten(), Dense(4)}),
                    sparse_logits);
  }
}

TEST_CASE("gradients of losses match central differences") {
  const auto ending_in = [](ActivationFunction last) {
    return Sequential{Input({6}), Dense(5, {.activation = activations::tanh}), BatchNormalization(),
                      Dense(3, {.activation = last})};
  };
  check_gradients(ending_in(activations::linear), SparseCategoricalCrossentropy({.from_logits = true}));
  check_gradients(ending_in(activations::linear), CategoricalCrossentropy({.from_logits = true}));
  check_gradients(ending_in(softmax), SparseCategoricalCrossentropy());
  check_gradients(ending_in(softmax), CategoricalCrossentropy());
  check_gradients(ending_in(sigmoid), SparseCategoricalCrossentropy());
  check_gradients(ending_in(sigmoid), CategoricalCrossentropy());
  check_gradients(ending_in(softmax), CategoricalCrossentropy({.from_logits = true}));
  check_gradients(ending_in(activations::tanh), MeanSquaredError());
  check_gradients(ending_in(activations::linear), MeanSquaredError(), {2, 0, 3});
}

TEST_CASE("losses match their formulas") {
  const Sequential model{Input({3}), Activation(activations::linear)};
  const auto loss_of = [&](const Loss& loss, const Values& outputs, const Values& targets) {
    return ReferenceModel(model, loss, SGD()).evaluate(outputs, targets, 1).loss_sum;
  };
  CHECK(loss_of(sparse_logits, {1, 2, 3}, {0}) == Approx(std::log(std::exp(1) + std::exp(2) + std::exp(3)) - 1));
  CHECK(loss_of(sparse_logits, {1000, 0, -1000}, {1}) == Approx(1000));
  CHECK(loss_of(SparseCategoricalCrossentropy(), {0.2, 0.5, 0.3}, {1}) == Approx(std::log(2)));
  CHECK(loss_of(SparseCategoricalCrossentropy(), {0, 1, 0}, {0}) == Approx(-std::log(1e-7)));
  CHECK(loss_of(SparseCategoricalCrossentropy(), {0, 1, 0}, {1}) == Approx(2e-7));
  CHECK(loss_of(SparseCategoricalCrossentropy(), {0.2, 0.5, 0.1}, {1}) == Approx(std::log(1.6)));
  CHECK(loss_of(SparseCategoricalCrossentropy(), {3, 5, 0}, {1}) == Approx(std::log(2)));
  CHECK(loss_of(CategoricalCrossentropy(), {0.2, 0.5, 0.1}, {0, 1, 0}) == Approx(std::log(1.6)));
  CHECK(loss_of(CategoricalCrossentropy(), {3, 5, 0}, {0, 1, 0}) == Approx(std::log(1.6)));
  CHECK(loss_of(CategoricalCrossentropy(), {0.25, 0.25, 0.5}, {0.5, 0, 0.5}) == Approx(1.5 * std::log(2)));
  CHECK(loss_of(CategoricalCrossentropy({.from_logits = true}), {0, 0, 0}, {0.5, 0, 0.5}) == Approx(std::log(3)));
  CHECK(loss_of(MeanSquaredError(), {1, 2, 3}, {1, 1, 1}) == Approx(5.0 / 3));

  ReferenceModel judge(model, sparse_logits, SGD());
  const Sums sums = judge.evaluate(Values{1, 0, 0, 0, 2, 1, 0, 0, 9}, Values{0, 2, 2}, 3);
  CHECK(sums.correct == 2);
}

TEST_CASE("two steps of every optimizer match values computed by hand") {
  // One weight, w = 1: y = w x with x = 1 and target 0 has the loss w^2 and the gradient 2 w.
  const auto two_steps = [](const Optimizer& optimizer) {
    ReferenceModel model(Sequential{Input({1}), Dense(1, {.use_bias = false})}, MeanSquaredError(), optimizer);
    double& w = model.weights()[0][0];
    w = 1;
    std::vector<double> seen;
    for (int step = 0; step < 2; ++step) {
      model.train_step(Values{1}, Values{0}, 1, 1);
      seen.push_back(w);
    }
    return seen;
  };
  const auto check_steps = [&](const Optimizer& optimizer, double first, double second) {
    const std::vector<double> seen = two_steps(optimizer);
    CHECK(seen[0] == Approx(first).epsilon(1e-12));
    CHECK(seen[1] == Approx(second).epsilon(1e-12));
  };
  check_steps(SGD({.learning_rate = 0.1}), 0.8, 0.64);
  // v = -0.2, then 0.5 * -0.2 - 0.1 * 1.6 = -0.26
  check_steps(SGD({.learning_rate = 0.1, .momentum = 0.5}), 0.8, 0.54);
  // w += 0.5 v - 0.2 = -0.3; g = 1.4, v = -0.1 - 0.14 = -0.24, w += -0.12 - 0.14
  check_steps(SGD({.learning_rate = 0.1, .momentum = 0.5, .nesterov = true}), 0.7, 0.44);

  // beta 0.5, 0.75, epsilon 1: g = 2: m = 1, v = 1, alpha = 0.1 sqrt(0.25) / 0.5 = 0.1, w = 1 - 0.1 / 2 = 0.95;
  // g = 1.9: m = 1.45, v = 1 + (3.61 - 1) / 4 = 1.6525, alpha = 0.1 sqrt(0.4375) / 0.75
  const double adam_first = 0.95;
  const double adam_second = 0.95 - 0.1 * std::sqrt(0.4375) / 0.75 * 1.45 / (std::sqrt(1.6525) + 1);
  check_steps(Adam({.learning_rate = 0.1, .beta_1 = 0.5, .beta_2 = 0.75, .epsilon = 1}), adam_first, adam_second);
  // Decay first: w = 1 - 0.1 * 0.5 = 0.95, then 0.05 less: 0.9. g = 1.8: m = 1.4, v = 1 + (3.24 - 1) / 4 = 1.56.
  check_steps(AdamW({.learning_rate = 0.1, .weight_decay = 0.5, .beta_1 = 0.5, .beta_2 = 0.75, .epsilon = 1}), 0.9,
              0.9 * 0.95 - 0.1 * std::sqrt(0.4375) / 0.75 * 1.4 / (std::sqrt(1.56) + 1));

  // rho 0.75, epsilon 3: v = 1, d = 4, w = 1 - 0.1 * 2 / 2 = 0.9; g = 1.8: v = 0.75 + 0.81 = 1.56
  const double second_increment = 0.18 / std::sqrt(4.56);
  check_steps(RMSprop({.learning_rate = 0.1, .rho = 0.75, .epsilon = 3}), 0.9, 0.9 - second_increment);
  check_steps(RMSprop({.learning_rate = 0.1, .rho = 0.75, .momentum = 0.5, .epsilon = 3}), 0.9,
              0.9 - (0.5 * 0.1 + second_increment));
  // a = 0.5, d = 1 - 0.25 + 3.25 = 4, w = 0.9; a = 0.375 + 0.45 = 0.825, d = 1.56 - a^2 + 3.25
  check_steps(RMSprop({.learning_rate = 0.1, .rho = 0.75, .epsilon = 3.25, .centered = true}), 0.9,
              0.9 - 0.18 / std::sqrt(1.56 - 0.825 * 0.825 + 3.25));
}

TEST_CASE("replicas affect only BatchNormalization, whose statistics are averaged over them") {
  const Sequential plain{Input({4}), Dense(3, {.activation = relu}), Dropout(0.3), Dense(2)};
  const Values inputs = scattered(examples * 4, 0.3);
  const Values targets{0, 1, 1, 0, 1};
  ReferenceModel whole(plain, sparse_logits, Adam(), 5);
  ReferenceModel sliced(plain, sparse_logits, Adam(), 5);
  const Sums a = whole.train_step(inputs, targets, examples, examples);
  const Sums b = sliced.train_step(inputs, targets, examples, examples, {2, 2, 1});
  CHECK(a.loss_sum == Approx(b.loss_sum).epsilon(1e-12));
  CHECK(a.correct == b.correct);
  for (std::size_t i = 0; i < 12; ++i) CHECK(whole.weights()[0][i] == Approx(sliced.weights()[0][i]).epsilon(1e-9));

  // One feature, values 1 2 | 3 7: means 1.5 and 5, biased variances 0.25 and 4.
  const Sequential normalized{Input({1}), BatchNormalization({.momentum = 0.75}), Dense(1)};
  ReferenceModel model(normalized, MeanSquaredError(), SGD());
  model.train_step(Values{1, 2, 3, 7}, Values{0, 0, 0, 0}, 4, 4, {2, 0, 2});
  CHECK(model.weights()[2][0] == Approx(0.25 * 3.25));
  CHECK(model.weights()[3][0] == Approx(0.75 + 0.25 * 2.125));
  CHECK(model.gradients()[2][0] == Approx(3.25));
}

TEST_CASE("gradients are divided by the global batch") {
  const Sequential model{Input({2}), Dense(2)};
  ReferenceModel small(model, sparse_logits, SGD(), 1);
  ReferenceModel large(model, sparse_logits, SGD(), 1);
  const Sums a = small.compute_gradients(Values{1, 2}, Values{1}, 1, 1);
  const Sums b = large.compute_gradients(Values{1, 2}, Values{1}, 1, 4);
  CHECK(a.loss_sum == b.loss_sum);
  for (std::size_t i = 0; i < 4; ++i) CHECK(small.gradients()[0][i] == Approx(4 * large.gradients()[0][i]));
}

TEST_CASE("Dropout keys every element by its full counter and only in training") {
  const Sequential model{Input({3}), Activation(relu), Dropout(0.5), Dense(1)};
  ReferenceModel reference(model, MeanSquaredError(), SGD({.learning_rate = 0}), 77);
  std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> asked;
  reference.set_dropout([&](const DropoutElement& element) {
    CHECK(element.seed == 77);
    CHECK(element.layer == 2);
    CHECK(element.rate == 0.5);
    asked.emplace(element.step, element.place, element.index);
    return element.index == 1;
  });
  const Values inputs{1, 2, 3, 4, 5, 6};
  reference.weights()[0] = {1, 10, 100};
  reference.weights()[1] = {0};
  CHECK(reference.predict(inputs, 2) == Values{321, 654});
  CHECK(asked.empty());
  const Sums sums = reference.train_step(inputs, Values{40, 100}, 2, 2, {1, 1});  // 10 * 2 * 2 and 10 * 5 * 2
  CHECK(sums.loss_sum == Approx(0).margin(1e-12));
  CHECK(asked.size() == 6);
  CHECK(asked.contains({0, 1, 2}));
  reference.train_step(inputs, Values{0, 0}, 2, 2);
  CHECK(asked.size() == 12);
  CHECK(asked.contains({1, 0, 0}));
  CHECK(reference.gradients()[0][0] == 0);
  CHECK(reference.gradients()[0][1] == Approx(2 * (40 * 4 + 100 * 10) / 2.0));
}
