// The reference against three training steps and a prediction that Keras 3.15.1 computed in double precision.
// tests/interop/reference_golden.py prints these numbers; its formulas for inputs and weights must match this file.
#include "support/catch.hpp"
#include "support/reference.hpp"

#include <lockstep/layers/sequential.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

using namespace lockstep;
using lockstep::reference::ReferenceModel;
using lockstep::reference::Values;

namespace {

constexpr std::int64_t examples = 6;
constexpr int steps = 3;

/// Keras' results: mean losses, and for each weight tensor the sum of w[i] cos(i) after the steps.
struct Golden {
  Values losses;
  Values weights;
  Values outputs;
};

Values inputs_of(const Sequential& model, int step) {
  Values values(static_cast<std::size_t>(examples * model.input_shape().elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37 * static_cast<double>(i) + step);
  return values;
}

Values targets_of(const Sequential& model, const Loss& loss, int step) {
  const auto classes = static_cast<std::size_t>(model.output_shape().elements());
  if (std::holds_alternative<SparseCategoricalCrossentropy>(loss)) {
    Values values(static_cast<std::size_t>(examples));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>((5 * i + static_cast<std::size_t>(step)) % classes);
    }
    return values;
  }
  Values values(static_cast<std::size_t>(examples) * classes);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.5 + std::cos(0.3 * static_cast<double>(i) + step);
  if (std::holds_alternative<CategoricalCrossentropy>(loss)) {
    for (std::size_t row = 0; row < values.size(); row += classes) {
      double sum = 0;
      for (std::size_t i = row; i < row + classes; ++i) sum += values[i];
      for (std::size_t i = row; i < row + classes; ++i) values[i] /= sum;
    }
  }
  return values;
}

void set_weights(const Sequential& model, ReferenceModel& reference) {
  std::size_t parameter = 0;
  for (const LayerInfo& layer : model.layers()) {
    for (const ParameterInfo& info : layer.parameters) {
      Values& values = reference.weights()[parameter];
      const double base = info.initializer == Initializer::ones ? 1 : 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = base + 0.3 * std::sin(1.7 * static_cast<double>(parameter) + 0.61 * static_cast<double>(i) + 0.2);
      }
      ++parameter;
    }
  }
}

void compare(const Sequential& model, const Loss& loss, const Optimizer& optimizer, const Golden& golden) {
  ReferenceModel reference(model, loss, optimizer);
  set_weights(model, reference);
  const auto is = [](double expected) { return Approx(expected).epsilon(1e-9).margin(1e-12); };
  for (int step = 0; step < steps; ++step) {
    const auto sums = reference.train_step(inputs_of(model, step), targets_of(model, loss, step), examples, examples);
    CHECK(sums.loss_sum / examples == is(golden.losses.at(static_cast<std::size_t>(step))));
  }
  REQUIRE(reference.weights().size() == golden.weights.size());
  for (std::size_t parameter = 0; parameter < golden.weights.size(); ++parameter) {
    const Values& values = reference.weights()[parameter];
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * std::cos(static_cast<double>(i));
    INFO("parameter " << parameter);
    CHECK(sum == is(golden.weights[parameter]));
  }
  const Values outputs = reference.predict(inputs_of(model, steps), examples);
  for (std::size_t i = 0; i < golden.outputs.size(); ++i) CHECK(outputs[i] == is(golden.outputs[i]));
}

Sequential image_model() {
  return Sequential{Input({7, 6, 2}),
                    Conv2D(3, {3, 2}, {.strides = {2, 1}, .padding = Padding::same, .activation = relu}),
                    MaxPooling2D(2, {.strides = 1, .padding = Padding::same}),
                    BatchNormalization(),
                    AveragePooling2D({2, 3}, {.strides = 2, .padding = Padding::same}),
                    Conv2D(4, 2, {.padding = Padding::same, .dilation_rate = 2}),
                    Flatten(),
                    Dense(5, {.activation = activations::tanh}),
                    Dense(4)};
}

}  // namespace

TEST_CASE("the reference matches Keras") {
  SECTION("images, Nesterov") {
    compare(image_model(), SparseCategoricalCrossentropy({.from_logits = true}),
            SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}),
            {.losses = {1.432602977947938, 1.3804022496542778, 1.3668685031176795},
             .weights = {-0.16068172883169843, 0.37705145642318705, 0.973501775710865, -0.34162292846750913,
                         0.24902684376533382, 1.3603448905793498, -0.10371229758287165, -0.48468365999753005,
                         0.06937652874574551, 0.5471322532959085, -0.48834051148588387, -0.23562243714861586},
             .outputs = {-0.030413241395572888, 0.15042690404898099, 0.23556741575226012, 0.2286347443844019}});
  }
  SECTION("images, RMSprop") {
    compare(image_model(), SparseCategoricalCrossentropy({.from_logits = true}), RMSprop({.learning_rate = 0.01}),
            {.losses = {1.432602977947938, 1.372898102481498, 1.4002212818919275},
             .weights = {-0.12621068133612215, 0.44092951677494663, 0.8979591907486364, -0.38885323976048924,
                         0.24985271974016798, 1.3606261994344653, -0.14323499410753143, -0.4579894379862811,
                         -0.06583229582077732, 0.5701244230608351, -0.4267793314723258, -0.24986964439560497},
             .outputs = {0.06259212506210912, 0.2716831546772266, 0.32367279751979844, 0.25169502089752965}});
  }
  SECTION("dilated, Adam") {
    compare(Sequential{Input({8, 8, 1}), Conv2D(2, 3, {.dilation_rate = 2, .activation = sigmoid, .use_bias = false}),
                       AveragePooling2D(2), GlobalAveragePooling2D(), Dense(3, {.activation = softmax})},
            CategoricalCrossentropy(), Adam({.learning_rate = 0.05}),
            {.losses = {1.1086557350399973, 1.1017478310734292, 1.0986546983800998},
             .weights = {0.07498175281931413, 0.618761307466046, -0.32526552293690525},
             .outputs = {0.3063924105607007, 0.3282794836822271, 0.3653281057570723}});
  }
  SECTION("vectors, centered RMSprop") {
    compare(Sequential{Input({5}), Dense(6, {.activation = sigmoid}),
                       BatchNormalization({.momentum = 0.9, .center = false}), Activation(activations::tanh), Dense(2)},
            MeanSquaredError(), RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true}),
            {.losses = {3.5648976719651517, 1.901286861142361, 1.841976605231238},
             .weights = {-0.2904547149552749, 0.6577488721292677, -0.10879153114135154, -0.48892212081935826,
                         -0.15490715809534397, 0.20194277265565055, -0.24169798619897992},
             .outputs = {-0.11166301639798545, -0.27902468730414237}});
  }
  SECTION("reshaped, AdamW") {
    compare(Sequential{Input({12}), Reshape({-1, 3, 2}), Conv2D(3, {2, 1}), Activation(softmax), MaxPooling2D({1, 2}),
                       Flatten(), Dense(3, {.activation = softmax})},
            SparseCategoricalCrossentropy(), AdamW({.learning_rate = 0.02}),
            {.losses = {1.1099419811504136, 1.1049672348468331, 1.1068151562722153},
             .weights = {-0.5322394209941089, 0.38447498397666763, 0.664531236198635, -0.23647206726736547},
             .outputs = {0.30841365282386296, 0.33998922458991027, 0.3515971225862269}});
  }
  SECTION("vectors, momentum") {
    compare(Sequential{Input({5}), Dense(4, {.activation = relu, .use_bias = false}),
                       BatchNormalization({.epsilon = 0.01, .scale = false}), Dense(3)},
            CategoricalCrossentropy({.from_logits = true}), SGD({.learning_rate = 0.1, .momentum = 0.8}),
            {.losses = {1.114513605560718, 1.114867120029441, 1.1164332879761154},
             .weights = {-0.20634770335023697, 0.5263840842497771, 0.06990672401812018, -0.4138912873353384,
                         -0.5588320463595797, 0.22547503447070585},
             .outputs = {0.2237425246284788, 0.0600967985842457, -0.12305283533515601}});
  }
  SECTION("vectors, plain SGD") {
    compare(Sequential{Input({5}), Dense(4, {.activation = activations::tanh}), Dense(3, {.activation = sigmoid})},
            MeanSquaredError(), SGD({.learning_rate = 0.1}),
            {.losses = {1.281150173483329, 1.2146133203261813, 1.5703785864945001},
             .weights = {-0.21035330023611337, 0.503338927418167, 0.57492328709472, -0.28452583275087195},
             .outputs = {0.4401413082532926, 0.48009726541046743, 0.5320139899924979}});
  }
}
