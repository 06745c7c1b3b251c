// Writes the models that the tests open with real Keras, in every file format. The values follow a simple formula,
// which the Python tests repeat. With seeds it writes random models instead, named after their seeds.
//   interop_write_model DIRECTORY [SEED...]
#include "checkpoint/model_file.hpp"
#include "support/models.hpp"
#include "unit/checkpoint/random_model.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

/// Value number `index` of array number `array`: in (-0.25, 0.25), or in (0.5, 1) for arrays that must not be negative,
/// such as variances. Multiples of 2^-10 are exact in Python's float32.
float value_at(std::size_t array, std::size_t index, bool positive) {
  const auto hash = static_cast<std::uint32_t>((index * 7919 + array * 104729 + 12345) % 511);
  const float value = (static_cast<float>(hash) - 255) / 1024;
  return positive ? 0.75F + value : value;
}

bool is_positive(const std::string& name) {
  return name.ends_with("variance") || name.ends_with("velocity") || name.ends_with("average_gradient");
}

/// `first` is the number of the first array, so that weights and slots differ.
void fill(std::vector<NamedTensor>& tensors, std::size_t first) {
  for (std::size_t array = 0; array < tensors.size(); ++array) {
    NamedTensor& tensor = tensors[array];
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = value_at(first + array, i, is_positive(tensor.name));
    }
  }
}

void write(const std::filesystem::path& stem, const ModelData& model) {
  for (const char* form : {".h5", ".keras", ".weights.h5"}) save_model(std::filesystem::path(stem) += form, model);
}

void write(const std::filesystem::path& stem, Sequential architecture, std::optional<Optimizer> optimizer = {},
           Loss loss = SparseCategoricalCrossentropy(), std::vector<Metric> metrics = {}) {
  ModelData model{std::move(architecture), {}, {}};
  model.weights = weights_for(model.architecture);
  fill(model.weights, 0);
  if (optimizer) {
    model.compile_state = CompileState{{*optimizer, loss, std::move(metrics)}, 1234, {}};
    model.compile_state->slots = slots_for(model.architecture, *optimizer);
    fill(model.compile_state->slots, 1000);
  }
  write(stem, model);
}

/// The random model of the checkpoint module's tests, with realistic values: those tests only copy values, but these
/// are used in computations and must neither vanish nor overflow in the layers.
ModelData random_model(std::uint64_t seed) {
  ModelData model = testing::random_model(seed);
  for (NamedTensor& weight : model.weights) {
    const bool variance = weight.name.ends_with("variance");
    const bool gamma = weight.name.ends_with("gamma");
    std::int64_t fan_in = 100;  // biases and means become a tenth of normal draws
    if (const std::size_t rank = weight.shape.rank(); rank > 1)
      fan_in = weight.shape.elements() / weight.shape[rank - 1];
    const float scale = 1 / std::sqrt(static_cast<float>(fan_in));
    for (float& value : weight.values) {
      value = variance ? 0.5F + std::abs(value) : scale * value + (gamma ? 1.0F : 0.0F);
    }
  }
  if (model.compile_state) model.compile_state->iteration %= 1'000'000;  // Keras' counter has 32 bits
  return model;
}

/// Every layer, with non-default options.
Sequential everything() {
  return Sequential(
      {Input({12, 11, 2}, "picture"),
       Conv2D(4, {3, 2},
              {.strides = {2, 1},
               .padding = Padding::same,
               .activation = activations::tanh,
               .kernel_initializer = Initializer::he_normal,
               .name = "first_conv"}),
       BatchNormalization({.momentum = 0.9, .epsilon = 0.01}), Activation(sigmoid),
       AveragePooling2D({2, 3}, {.strides = 1, .padding = Padding::same}), Dropout(0.25),
       Conv2D(3, 2, {.dilation_rate = 2, .use_bias = false, .kernel_initializer = Initializer::glorot_normal}),
       BatchNormalization({.center = false, .scale = false}), MaxPooling2D(2, {.strides = {1, 2}}),
       Conv2D(6, 1, {.kernel_initializer = Initializer::he_uniform, .bias_initializer = Initializer::ones}),
       GlobalAveragePooling2D(), Dense(8, {.activation = relu, .use_bias = false}), Reshape({2, -1}), Flatten(),
       Dense(5, {.activation = softmax, .kernel_initializer = Initializer::zeros})},
      "everything");
}

Sequential small() { return {Input({4}), Dense(3, {.activation = softmax})}; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: interop_write_model DIRECTORY [SEED...]\n";
    return static_cast<int>(ExitCode::usage);
  }
  const std::filesystem::path directory = argv[1];
  try {
    for (int i = 2; i < argc; ++i) write(directory / argv[i], random_model(std::stoull(argv[i])));
    if (argc > 2) return 0;
    write(directory / "keras_mnist", testing::keras_mnist(), SGD({.learning_rate = 0.001}),
          SparseCategoricalCrossentropy({.from_logits = true}), {accuracy});
    write(directory / "custom_training_mnist", testing::custom_training_mnist(), Adam(),
          SparseCategoricalCrossentropy({.from_logits = true}), {accuracy, metrics::SparseTopKCategoricalAccuracy()});
    write(directory / "everything", everything(), RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true}),
          CategoricalCrossentropy(), {accuracy, metrics::TopKCategoricalAccuracy()});
    write(directory / "uncompiled", everything());
    write(directory / "sgd_momentum", small(), SGD({.momentum = 0.9, .nesterov = true}), MeanSquaredError(),
          {metrics::MeanAbsoluteError(), metrics::RootMeanSquaredError()});
    write(directory / "adamw", small(), AdamW({.weight_decay = 0.01, .beta_1 = 0.8}), SparseCategoricalCrossentropy());
    write(directory / "rmsprop", small(), RMSprop({.rho = 0.8, .epsilon = 1e-5}), MeanSquaredError(),
          {metrics::MeanSquaredError()});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(ExitCode::internal);
  }
  return 0;
}
