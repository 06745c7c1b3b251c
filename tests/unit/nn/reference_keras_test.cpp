// The reference against Keras itself: three training steps and a prediction that Keras 3.15.1 computed in double
// precision. tests/interop/reference_golden.py prints the numbers and says the same formulas as this file.
#include "support/catch.hpp"
#include "support/reference.hpp"

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

/// What Keras made of it: losses are means, weights the sums of w[i] cos(i) after the steps.
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

TEST_CASE("The reference trains as Keras does") {
  SECTION("images, Nesterov") {
    compare(image_model(), SparseCategoricalCrossentropy({.from_logits = true}),
            SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}),
            {.losses = {1.4326029653957633, 1.3804022484401577, 1.3668684996657612},
             .weights = {-0.16068173579588735, 0.37705145805334633, 0.9735017801479773, -0.34162292873433114,
                         0.24902684946629455, 1.3603449107009247, -0.10371230360193218, -0.48468365957945964,
                         0.0693765341771041, 0.5471322529879317, -0.48834052346894696, -0.2356224396509462},
             .outputs = {-0.030413241472455357, 0.15042689825882016, 0.23556741088798439, 0.22863474729093025}});
  }
  SECTION("images, RMSprop") {
    compare(image_model(), SparseCategoricalCrossentropy({.from_logits = true}), RMSprop({.learning_rate = 0.01}),
            {.losses = {1.4326029653957633, 1.3728981063705339, 1.4002212923656172},
             .weights = {-0.126210097507375, 0.4409295663840764, 0.8979592508270682, -0.38885322525056193,
                         0.2498527105858558, 1.3606262415303445, -0.14323506816120857, -0.45798943569889083,
                         -0.06583238441409167, 0.5701244128940267, -0.4267793021571337, -0.2498696424356645},
             .outputs = {0.06259204795379149, 0.2716830700957823, 0.32367274534492385, 0.2516950138252275}});
  }
  SECTION("dilated, Adam") {
    compare(Sequential{Input({8, 8, 1}), Conv2D(2, 3, {.dilation_rate = 2, .activation = sigmoid, .use_bias = false}),
                       AveragePooling2D(2), GlobalAveragePooling2D(), Dense(3, {.activation = softmax})},
            CategoricalCrossentropy(), Adam({.learning_rate = 0.05}),
            {.losses = {1.1086557346604582, 1.1017478309121784, 1.0986546984290528},
             .weights = {0.07498175616040369, 0.6187613062635966, -0.3252655229233169},
             .outputs = {0.30639241147059043, 0.32827948395280704, 0.36532810457660253}});
  }
  SECTION("vectors, centered RMSprop") {
    compare(Sequential{Input({5}), Dense(6, {.activation = sigmoid}),
                       BatchNormalization({.momentum = 0.9, .center = false}), Activation(activations::tanh), Dense(2)},
            MeanSquaredError(), RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true}),
            {.losses = {3.5648969064156213, 1.9012884857753913, 1.841977636019389},
             .weights = {-0.29045759666388293, 0.6577407410144334, -0.10879214688046257, -0.48892236824624974,
                         -0.15490709956881196, 0.20194284196368853, -0.24169797492568482},
             .outputs = {-0.11166449928808109, -0.27902525779059406}});
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
            {.losses = {1.1145136070901178, 1.1148671199332407, 1.1164332875069964},
             .weights = {-0.20634770302094146, 0.5263840838888159, 0.0699067247846033, -0.41389110425381737,
                         -0.5588320485470943, 0.2254750336785729},
             .outputs = {0.223742519095755, 0.06009679255168756, -0.12305284110385156}});
  }
  SECTION("vectors, plain SGD") {
    compare(Sequential{Input({5}), Dense(4, {.activation = activations::tanh}), Dense(3, {.activation = sigmoid})},
            MeanSquaredError(), SGD({.learning_rate = 0.1}),
            {.losses = {1.2811502401406567, 1.2146133196074516, 1.5703786653466523},
             .weights = {-0.21035330096976154, 0.5033389248727939, 0.5749232880250474, -0.2845258287941684},
             .outputs = {0.4401413090976892, 0.48009726582730305, 0.532013990100477}});
  }
}
