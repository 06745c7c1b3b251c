// Draws one layer after the other. Redraws a layer that cannot follow the model so far.
#include "random_model.hpp"

#include "checkpoint/keras/keras_config.hpp"
#include "core/variant_types.hpp"
#include "layers/activation_functions.hpp"
#include "layers/initializers.hpp"
#include "layers/layer_registry.hpp"
#include "support/optimizers.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::testing {
namespace {

template <typename Values>
auto any_of(RandomStream& random, const Values& values) {
  return values[random.below(static_cast<std::uint32_t>(values.size()))];
}

/// Draws random values for a layer's fields, within their ranges.
class AnyFields : public FieldVisitor {
 public:
  explicit AnyFields(RandomStream& random) : random_(random) {}

  void required(std::string_view /*key*/, auto& value, const auto&... range) const { draw(value, range...); }
  void optional(std::string_view /*key*/, auto& value, const auto&... range) const {
    if (random_.below(3) > 0) draw(value, range...);
  }

 private:
  void draw(bool& value) const { value = random_.below(2) == 0; }
  void draw(int& value, const Interval& /*range*/) const { value = 1 + static_cast<int>(random_.below(6)); }
  void draw(Size2D& value, const Interval& /*range*/) const {
    value.height = 1 + static_cast<int>(random_.below(3));
    value.width = 1 + static_cast<int>(random_.below(3));
  }
  void draw(DotAxes& value) const {
    value = any_of(random_, std::array<DotAxes, 4>{DotAxes(-1), DotAxes(1), DotAxes(2, 2), DotAxes(1, -2)});
  }
  void draw(Size1D& value, const Interval& /*range*/) const { value.length = 1 + static_cast<int>(random_.below(3)); }
  void draw(double& value, const Interval& range) const {
    do {
      value = random_.below(2) == 0 ? random_.uniform() : random_.normal();
    } while (!range.contains(value));
  }
  void draw(int& value) const { value = 1 + static_cast<int>(random_.below(3)); }
  void draw(std::optional<double>& value, const Interval& range) const { draw(value.emplace(), range); }
  void draw(std::vector<double>& value) const { value = {0.5 + random_.uniform()}; }
  void draw(std::vector<int>& value) const {
    value = any_of(random_, std::array{std::vector{1}, std::vector{2, 1}, std::vector{3, 1, 2}});
  }
  void draw(Margins1D& value, const Interval& /*range*/) const {
    value = {static_cast<int>(random_.below(3)), static_cast<int>(random_.below(3))};
  }
  void draw(Margins2D& value, const Interval& /*range*/) const {
    const auto margin = [this] { return static_cast<int>(random_.below(3)); };
    value = {margin(), margin(), margin(), margin()};
  }
  void draw(Interpolation& value) const {
    value = random_.below(2) == 0 ? Interpolation::nearest : Interpolation::bilinear;
  }
  void draw(Padding& value) const { value = random_.below(2) == 0 ? Padding::valid : Padding::same; }
  void draw(Padding& value, OrCausal /*range*/) const {
    if (random_.below(3) > 0) return draw(value);
    value = Padding::causal;
  }
  void draw(ActivationFunction& value) const { value = any_of(random_, named_activations()); }
  void draw(Initializer& value) const {
    value = any_of(random_, initializer_rows).initializer;
    if (random_.below(2) == 0) visit_initializer_fields(*this, value);
  }
  void draw(Regularizer& value) const {
    const double first = random_.uniform();
    value = any_of(random_, std::array<Regularizer, 3>{L1(first), L2(first), L1L2(first, random_.uniform())});
  }
  void draw(Constraint& value) const {
    const auto axes = any_of(random_, std::array{std::vector<int>{0}, std::vector<int>{-1}, std::vector<int>{}});
    const double bound = random_.uniform();
    value = any_of(random_, std::array<Constraint, 4>{MaxNorm(bound, axes), NonNeg(), UnitNorm(axes),
                                                      MinMaxNorm(bound / 2, bound, random_.uniform(), axes)});
  }
  void draw(RandomFactor& value) const { value = random_.uniform(); }
  void draw(std::optional<RandomFactor>& value) const { draw(value.emplace(0)); }
  void draw(FlipMode& value) const { value = FlipMode::vertical; }
  void draw(FillMode& value) const { value = FillMode::constant; }
  void draw(OutputMode& value) const { value = OutputMode::one_hot; }
  void draw(FanMode& value) const { value = any_of(random_, fan_modes).first; }
  void draw(Distribution& value) const { value = any_of(random_, distributions).first; }
  void draw(Shape& value) const { value = {-1}; }

  RandomStream& random_;
};

Architecture any_nested_model(RandomStream& random, const Shape& input);

/// A layer of any type except Input and those that come first in a model, and layers of keras.applications, which Keras
/// does not find by their names in .h5 files. Nested models read `input`.
Layer any_layer(RandomStream& random, const std::string& name, const Shape& input, int depth) {
  if (depth == 0 && random.below(10) == 0) {
    NestedModel nested = any_nested_model(random, input);
    nested.name = name;
    return nested;
  }
  std::vector<Layer> blank;
  for_each_alternative<Layer>([&]<typename L>(std::type_identity<L>) {
    if constexpr (!std::is_same_v<L, Input> && !std::is_same_v<L, NestedModel>) {
      const std::string_view name_of_class = LayerTraits<L>::class_name;
      const bool is_drawn = module_of(name_of_class) == "keras.layers" && !reads_data(name_of_class);
      if (is_drawn) blank.push_back(blank_layer<L>());
    }
  });
  Layer drawn = any_of(random, blank);
  std::visit(
      [&]<typename L>(L& layer) {
        layer.name = name;
        const AnyFields fields(random);
        LayerTraits<L>::fields(fields, layer);
        if constexpr (std::is_same_v<L, Normalization>) {  // Keras takes both or none, and none means weights
          const bool are_weights = random.below(2) == 0;
          layer.mean = are_weights ? std::vector<double>() : std::vector<double>{random.normal()};
          layer.variance = are_weights ? std::vector<double>() : std::vector<double>{0.5 + random.uniform()};
        }
      },
      drawn);
  set_trainable(drawn, random.below(4) > 0);
  return drawn;
}

/// Of an image or, in one of three models, of a sequence.
Shape any_input(RandomStream& random) {
  if (random.below(3) == 0) return {12 + random.below(20), 1 + random.below(3)};
  return {6 + random.below(6), 6 + random.below(6), 1 + random.below(3)};
}

Sequential any_architecture(RandomStream& random, const Shape& input, int depth = 0) {
  std::vector<Layer> layers{Input(input)};
  if (depth == 0 && random.below(4) == 0) layers.push_back(Rescaling(random.normal(), random.normal()));
  const std::size_t count = layers.size() + 1 + random.below(8);
  while (layers.size() < count) {
    const std::string name = random.below(4) == 0 ? "layer number " + std::to_string(layers.size()) : "";
    const Shape last = layers.size() == 1 ? input : Sequential(layers).output_shape();
    layers.push_back(any_layer(random, name, last, depth));
    try {
      const Sequential possible(layers);
    } catch (const UsageError&) {
      layers.pop_back();
    }
  }
  return Sequential(layers, random.below(4) == 0 ? "mine" : "sequential");
}

/// Layers and merges of any earlier tensors, two of which are outputs; one layer in six is called twice.
Architecture any_graph(RandomStream& random, const Shape& shape, int depth = 0) {
  const Tensor input = Input(shape);
  std::vector<Tensor> tensors{input};
  const std::size_t count = 4 + random.below(8);
  while (tensors.size() < count) {
    const std::string name = random.below(4) == 0 ? "layer number " + std::to_string(tensors.size()) : "";
    const Tensor read = any_of(random, tensors);
    const Layer layer = any_layer(random, name, read.shape(), depth);
    const LayerIdentity identity;
    const bool merges = std::visit([]<typename L>(const L&) { return is_merge<L>; }, layer);
    try {
      const Tensor made(layer, identity, merges ? std::vector{read, read} : std::vector{read});
      tensors.push_back(made);
      if (!merges && random.below(6) == 0) tensors.emplace_back(layer, identity, std::vector{any_of(random, tensors)});
      const Functional possible(input, made);
    } catch (const UsageError&) {  // the layer cannot read this tensor
      continue;
    }
  }
  for (std::size_t outputs = 1 + (depth == 0 ? random.below(2) : 0); outputs > 0; --outputs) {
    try {
      return Functional(std::vector{input},
                        std::vector<Tensor>(tensors.end() - static_cast<std::ptrdiff_t>(outputs), tensors.end()),
                        random.below(4) == 0 ? "mine" : "functional");
    } catch (const UsageError&) {  // a shared layer that needs weights of several shapes
      continue;
    }
  }
  return Functional(input, Flatten()(input));
}

Architecture any_nested_model(RandomStream& random, const Shape& input) {
  if (random.below(2) == 0) return any_architecture(random, input, 1);
  return any_graph(random, input, 1);
}

/// Half of the learning rates are constant.
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
      CosineDecay decay{.initial_learning_rate = rate, .decay_steps = steps, .alpha = random.uniform()};
      if (flag) decay.warmup_target = random.uniform();
      if (flag) decay.warmup_steps = random.below(100);
      return decay;
    }
    case 5:
      return CosineDecayRestarts({.initial_learning_rate = rate,
                                  .first_decay_steps = steps,
                                  .t_mul = 1 + random.uniform(),
                                  .m_mul = random.uniform(),
                                  .alpha = random.uniform()});
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
  const bool flag = random.below(2) == 0;
  const double momentum = random.below(2) == 0 ? 0.0 : static_cast<double>(random.uniform());
  const std::vector<Optimizer> all = complete(
      {SGD{.momentum = momentum, .nesterov = flag}, Adam{.beta_1 = random.uniform(), .beta_2 = random.uniform()},
       AdamW{.weight_decay = random.uniform(), .epsilon = 1e-3},
       RMSprop{.rho = random.uniform(), .momentum = momentum, .centered = flag}});
  Optimizer optimizer = any_of(random, all);
  const LearningRate rate = any_rate(random);
  std::visit(
      [&](auto& options) {
        options.learning_rate = rate;
        options = any_clipping(options, random);
        if (random.below(3) == 0) options.weight_decay = 0.1 + random.uniform();
        if (random.below(3) == 0) options.gradient_accumulation_steps = 2 + static_cast<int>(random.below(5));
        options.use_ema = random.below(3) == 0;
        if (options.use_ema) options.ema_momentum = random.uniform();
        if (random.below(3) == 0) options.ema_overwrite_frequency = 1 + static_cast<int>(random.below(5));
        if constexpr (requires { options.amsgrad; }) options.amsgrad = flag;
      },
      optimizer);
  return optimizer;
}

Loss any_loss(RandomStream& random) {
  const bool from_logits = random.below(2) == 0;
  std::vector<Loss> all;
  for_each_alternative<Loss>([&]<typename T>(std::type_identity<T>) {
    T loss;
    if constexpr (requires { loss.from_logits; }) loss.from_logits = from_logits;
    if constexpr (requires { loss.label_smoothing; }) loss.label_smoothing = random.uniform();
    if constexpr (requires { loss.gamma; }) loss.gamma = random.uniform();
    if constexpr (requires { loss.delta; }) loss.delta = 0.1 + random.uniform();
    loss.reduction = any_of(random, std::array{Reduction::sum_over_batch_size, Reduction::sum});
    all.emplace_back(loss);
  });
  return any_of(random, all);
}

bool equal(const std::vector<NamedTensor>& left, const std::vector<NamedTensor>& right, std::string& why) {
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

bool reads_data(std::string_view class_name) {
  constexpr std::array<std::string_view, 9> classes{"Embedding",  "CategoryEncoding",  "Discretization",
                                                    "RandomFlip", "RandomTranslation", "RandomRotation",
                                                    "RandomZoom", "RandomContrast",    "RandomBrightness"};
  return std::ranges::find(classes, class_name) != classes.end();
}

void fill(std::vector<NamedTensor>& tensors, RandomStream& random) {
  for (NamedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    for (float& value : tensor.values) value = random.normal();
  }
}

ModelData random_model(std::uint64_t seed) {
  RandomStream random(seed, RandomPurpose::test, 0);
  ModelData model{
      random.below(2) == 0 ? any_graph(random, any_input(random)) : any_architecture(random, any_input(random)),
      {},
      {}};
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  if (random.below(4) == 0) return model;
  CompileState training{{any_optimizer(random), any_loss(random), {}}, 0, {}};
  if (random.below(2) == 0) training.metrics.push_back(accuracy);
  for (std::size_t i = 0; i < model.architecture.outputs().size() && model.architecture.outputs().size() > 1; ++i) {
    OutputOptions& output = training.outputs.emplace_back();
    output.output = model.architecture.output_layer(i).name;
    output.loss = any_loss(random);
    output.loss_weight = random.below(2) == 0 ? 1 : 0.5;
    output.metrics = std::exchange(training.metrics, {});
  }
  training.iteration = static_cast<std::int64_t>(random.next()) << random.below(20);
  training.slots = slots_for(model.architecture, training.optimizer);
  fill(training.slots, random);
  model.compile_state = std::move(training);
  return model;
}

bool equal(const ModelData& left, const ModelData& right, std::string& why) {
  // The JSON contains all options of the layers, the optimizer and the loss.
  const std::string left_json = architecture_to_json(left.architecture);
  const std::string right_json = architecture_to_json(right.architecture);
  if (left_json != right_json) {
    why = left_json + "\nand\n" + right_json;
    return false;
  }
  if (!equal(left.weights, right.weights, why)) return false;
  if (left.compile_state.has_value() != right.compile_state.has_value()) {
    why = "one is compiled, the other is not";
    return false;
  }
  if (!left.compile_state) return true;
  if (training_config_to_json(*left.compile_state) != training_config_to_json(*right.compile_state)) {
    why = training_config_to_json(*left.compile_state) + "\nand\n" + training_config_to_json(*right.compile_state);
    return false;
  }
  if (left.compile_state->iteration != right.compile_state->iteration) {
    why = "iterations " + std::to_string(left.compile_state->iteration) + " and " +
          std::to_string(right.compile_state->iteration);
    return false;
  }
  return equal(left.compile_state->slots, right.compile_state->slots, why);
}

}  // namespace lockstep::testing
