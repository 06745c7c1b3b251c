// Draws layer after layer; one that cannot follow the model so far is drawn again.
#include "random_model.hpp"

#include "checkpoint/keras_config.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {
namespace {

ActivationFunction any_activation(RandomStream& random) { return static_cast<ActivationFunction>(random.below(5)); }

Initializer any_initializer(RandomStream& random) { return static_cast<Initializer>(random.below(6)); }

Padding any_padding(RandomStream& random) { return random.below(2) == 0 ? Padding::valid : Padding::same; }

Extent any_extent(RandomStream& random, int most) {
  const int height = 1 + static_cast<int>(random.below(static_cast<std::uint32_t>(most)));
  return {height, 1 + static_cast<int>(random.below(static_cast<std::uint32_t>(most)))};
}

Layer any_conv(RandomStream& random, std::string name) {
  Conv2DOptions options;
  if (random.below(2) == 0) {
    options.strides = any_extent(random, 2);
  } else {
    options.dilation_rate = any_extent(random, 2);
  }
  options.padding = any_padding(random);
  options.activation = any_activation(random);
  options.use_bias = random.below(2) == 0;
  options.kernel_initializer = any_initializer(random);
  options.bias_initializer = any_initializer(random);
  options.name = std::move(name);
  return Conv2D(1 + static_cast<int>(random.below(5)), any_extent(random, 3), options);
}

Layer any_dense(RandomStream& random, std::string name) {
  DenseOptions options;
  options.activation = any_activation(random);
  options.use_bias = random.below(2) == 0;
  options.kernel_initializer = any_initializer(random);
  options.bias_initializer = any_initializer(random);
  options.name = std::move(name);
  return Dense(1 + static_cast<int>(random.below(9)), options);
}

Layer any_normalization(RandomStream& random, std::string name) {
  BatchNormalizationOptions options;
  options.momentum = random.uniform();
  options.epsilon = 1e-4 + random.uniform();
  options.center = random.below(2) == 0;
  options.scale = random.below(2) == 0;
  options.name = std::move(name);
  return BatchNormalization(options);
}

Layer any_layer(RandomStream& random, std::string name) {
  switch (random.below(10)) {
    case 0: return Reshape({-1}, name);
    case 1: return Flatten(name);
    case 2: return any_conv(random, name);
    case 3: return any_dense(random, name);
    case 4: return MaxPooling2D(any_extent(random, 2), {.padding = any_padding(random), .name = name});
    case 5:
      return AveragePooling2D(any_extent(random, 2),
                              {.strides = any_extent(random, 2), .padding = any_padding(random), .name = name});
    case 6: return GlobalAveragePooling2D(name);
    case 7: return Dropout(random.uniform() * 0.9, name);
    case 8: return any_normalization(random, name);
    default: return Activation(any_activation(random), name);
  }
}

Sequential any_architecture(RandomStream& random) {
  std::vector<Layer> layers{Input({6 + random.below(6), 6 + random.below(6), 1 + random.below(3)})};
  if (random.below(4) == 0) layers.push_back(Rescaling(random.normal(), random.normal()));  // elsewhere none can train
  const std::size_t count = layers.size() + 1 + random.below(8);
  while (layers.size() < count) {
    const std::string name = random.below(4) == 0 ? "layer number " + std::to_string(layers.size()) : "";
    layers.push_back(any_layer(random, name));
    try {
      const Sequential possible(layers);
    } catch (const UsageError&) {
      layers.pop_back();
    }
  }
  return Sequential(layers, random.below(4) == 0 ? "mine" : "sequential");
}

/// Half of them constant.
LearningRate any_rate(RandomStream& random) {
  const double rate = random.uniform();
  const bool flag = random.below(2) == 0;
  const std::uint32_t steps = 1 + random.below(1000);
  switch (random.below(10)) {
    case 0:
      return ExponentialDecay(
          {.initial_learning_rate = rate, .decay_steps = steps, .decay_rate = random.uniform(), .staircase = flag});
    case 1:
      return InverseTimeDecay(
          {.initial_learning_rate = rate, .decay_steps = steps + 0.5, .decay_rate = random.uniform()});
    case 2:
      return PiecewiseConstantDecay({.boundaries = {steps, steps + 0.25, 2000}, .values = {rate, 0, 2, rate / 3}});
    case 3:
      return PolynomialDecay(
          {.initial_learning_rate = rate, .decay_steps = steps, .power = random.uniform(), .cycle = flag});
    case 4: {
      CosineDecayOptions options{.initial_learning_rate = rate, .decay_steps = steps, .alpha = random.uniform()};
      if (flag) options.warmup_target = random.uniform();
      if (flag) options.warmup_steps = random.below(100);
      return CosineDecay(options);
    }
    default: return rate;
  }
}

template <class Options>
Options any_clipping(Options options, RandomStream& random) {
  switch (random.below(6)) {
    case 0: options.clipnorm = 0.5 + random.uniform(); break;
    case 1: options.clipvalue = 0.5 + random.uniform(); break;
    case 2: options.global_clipnorm = 0.5 + random.uniform(); break;
    default: break;
  }
  return options;
}

Optimizer any_optimizer(RandomStream& random) {
  const LearningRate rate = any_rate(random);
  const auto clipped = [&](auto options) { return any_clipping(std::move(options), random); };
  switch (random.below(4)) {
    case 0:
      return SGD(clipped(SGDOptions{.learning_rate = rate,
                                    .momentum = random.below(2) == 0 ? 0.0 : static_cast<double>(random.uniform()),
                                    .nesterov = random.below(2) == 0}));
    case 1:
      return Adam(clipped(AdamOptions{.learning_rate = rate, .beta_1 = random.uniform(), .beta_2 = random.uniform()}));
    case 2:
      return AdamW(clipped(AdamWOptions{.learning_rate = rate, .weight_decay = random.uniform(), .epsilon = 1e-3}));
    default:
      return RMSprop(
          clipped(RMSpropOptions{.learning_rate = rate,
                                 .rho = random.uniform(),
                                 .momentum = random.below(2) == 0 ? 0.0 : static_cast<double>(random.uniform()),
                                 .centered = random.below(2) == 0}));
  }
}

Loss any_loss(RandomStream& random) {
  const bool from_logits = random.below(2) == 0;
  switch (random.below(3)) {
    case 0: return SparseCategoricalCrossentropy({.from_logits = from_logits});
    case 1: return CategoricalCrossentropy({.from_logits = from_logits});
    default: return MeanSquaredError();
  }
}

bool equal(const std::vector<SavedTensor>& left, const std::vector<SavedTensor>& right, std::string& why) {
  if (left.size() != right.size()) {
    why = std::to_string(left.size()) + " and " + std::to_string(right.size()) + " tensors";
    return false;
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    const bool same =
        left[i].name == right[i].name && left[i].shape == right[i].shape &&
        left[i].values.size() == right[i].values.size() &&
        std::memcmp(left[i].values.data(), right[i].values.data(), left[i].values.size() * sizeof(float)) == 0;
    if (same) continue;
    why = left[i].name + " and " + right[i].name;
    return false;
  }
  return true;
}

}  // namespace

void fill(std::vector<SavedTensor>& tensors, RandomStream& random) {
  for (SavedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    for (float& value : tensor.values) value = random.normal();
  }
}

SavedModel random_model(std::uint64_t seed) {
  RandomStream random(seed, RandomPurpose::test, 0);
  SavedModel model{any_architecture(random), {}, {}};
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  if (random.below(4) == 0) return model;
  SavedTraining training{any_optimizer(random), any_loss(random), {}, 0, {}};
  if (random.below(2) == 0) training.metrics.push_back(accuracy);
  training.iteration = static_cast<std::int64_t>(random.next()) << random.below(20);
  training.slots = slots_for(model.architecture, training.optimizer);
  fill(training.slots, random);
  model.training = std::move(training);
  return model;
}

bool equal(const SavedModel& left, const SavedModel& right, std::string& why) {
  // The JSON names every option of every layer, the optimizer and the loss, so it serves to compare them.
  const std::string left_json = sequential_to_json(left.architecture);
  const std::string right_json = sequential_to_json(right.architecture);
  if (left_json != right_json) {
    why = left_json + "\nand\n" + right_json;
    return false;
  }
  if (!equal(left.weights, right.weights, why)) return false;
  if (left.training.has_value() != right.training.has_value()) {
    why = "one is compiled, the other is not";
    return false;
  }
  if (!left.training) return true;
  if (training_to_json(*left.training) != training_to_json(*right.training)) {
    why = training_to_json(*left.training) + "\nand\n" + training_to_json(*right.training);
    return false;
  }
  if (left.training->iteration != right.training->iteration) {
    why =
        "iterations " + std::to_string(left.training->iteration) + " and " + std::to_string(right.training->iteration);
    return false;
  }
  return equal(left.training->slots, right.training->slots, why);
}

}  // namespace lockstep::testing
