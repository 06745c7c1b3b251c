// Updates by every optimizer, with and without clipping, from the gradients of several ranks, in shards that begin and
// end anywhere in a parameter.
#include "checked_model.hpp"
#include "cluster/world/world.hpp"
#include "collective/make_communicator.hpp"
#include "core/random.hpp"
#include "core/range.hpp"
#include "plan/norm_clipping.hpp"
#include "support/catch.hpp"
#include "support/optimizers.hpp"
#include "support/reference_optimizers.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Has blocked and unblocked kernels, statistics, parameters larger than a tile and smaller than a cache line.
const Sequential model{Input({5, 5, 3}),
                       Conv2D(33, 2, {.activation = activations::tanh}),
                       BatchNormalization({.momentum = 0.75}),
                       Flatten(),
                       Dense(7),
                       Dense(3)};

/// Splits a gradient arena into `count` arenas whose sum is about the same.
std::vector<std::vector<float>> split(std::span<const float> gradients, std::size_t count, RandomStream& random) {
  std::vector<std::vector<float>> parts(count, std::vector<float>(gradients.begin(), gradients.end()));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    float rest = gradients[i];
    for (std::size_t k = 1; k < count; ++k) {
      parts[k][i] = gradients[i] * random.uniform();
      rest -= parts[k][i];
    }
    parts[0][i] = rest;
  }
  return parts;
}

/// Updates all shards as a step does when norms are clipped: after all of them have been reduced.
void update(CheckedModel& checked_model, const Optimizer& optimizer, std::uint64_t step,
            const std::vector<Range>& shards, const std::vector<const float*>& sources) {
  const World world;
  const auto communicator = make_communicator(world);
  const Clipping clipping = clipping_of(optimizer);
  NormClipping norms(checked_model.plan(), checked_model.executable(), *communicator);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ReducedShard shard{shards[i].begin, shards[i].end, sources};
    if (clipping.needs_norms()) {
      norms.defer(i, shard, optimizer, step);
    } else {
      checked_model.executable().update(shard, optimizer, step);
    }
  }
  if (clipping.needs_norms()) norms.all_reduce_norms(clipping);
  for (const auto& deferred : norms.deferred_updates())
    checked_model.executable().update(deferred.shard, optimizer, step);
}

std::string describe_clipping(const Optimizer& optimizer) {
  const Clipping clipping = clipping_of(optimizer);
  return std::string(keras_name(optimizer)) + " " + std::string(keras_name(clipping.kind)) + " " +
         std::to_string(clipping.bound);
}

/// Checks several steps. Returns how many gradients were clipped, over all steps and variables.
int check_steps(const Optimizer& optimizer) {
  INFO(describe_clipping(optimizer));
  int clipped = 0;
  const double of_slots = std::holds_alternative<Ftrl>(optimizer) ? 1e-4 : 1e-5;  // Ftrl subtracts powers of sums
  CheckedModel checked_model(model, {.optimizer = optimizer, .capacity = 4});
  auto& reference = checked_model.reference();
  RandomStream random(3, RandomPurpose::test, 11);
  std::vector<float> arena(checked_model.arenas().elements);
  std::vector<double> moved(reference.weights().size());  // by the last step that changed the parameter
  for (std::uint64_t step = 1; step <= 6; ++step) {
    // The reference's gradient, rounded to floats. It changes with the weights and examples of each step.
    const Examples examples = make_examples(model, SparseCategoricalCrossentropy(), 4, step);
    reference.compute_gradients(examples.inputs, examples.targets, 4, 4, {3, 1});
    for (std::size_t p = 0; p < reference.gradients().size(); ++p) {
      const reference::Values& gradient = reference.gradients()[p];
      checked_model.executable().write_parameter(p, std::vector<float>(gradient.begin(), gradient.end()), arena);
    }
    std::vector<reference::Values> before = reference.weights();
    clipped += reference.clipped_gradients() != reference.gradients() ? 1 : 0;
    const bool changes = reference::changes_weights(optimizer, step);
    reference.apply_gradients();

    const auto parts = split(arena, 1 + step % 4, random);
    std::vector<const float*> sources;
    for (const auto& part : parts) sources.push_back(part.data());
    std::vector<Range> shards;
    for (std::size_t begin = 0; begin < arena.size(); begin = shards.back().end) {
      shards.push_back({begin, std::min(arena.size(), begin + random.below(3000))});
    }
    update(checked_model, optimizer, step, shards, sources);
    std::size_t trained = 0;
    for (std::size_t p = 0; p < before.size(); ++p) {
      const std::string& name = checked_model.plan().graph.parameters[p].name;
      INFO("step " << step << ", " << name);
      const std::vector<float> now = checked_model.read(p, checked_model.arenas().weights);
      const reference::Values& expected = reference.weights()[p];
      const std::vector<float> old(before[p].begin(), before[p].end());
      if (changes || reference.slots()[p].empty()) moved[p] = distance(old, expected);
      if (changes) CHECK(moved[p] > 0);
      // Ftrl computes each weight anew, from sums in which digits cancel.
      const double rounding =
          std::holds_alternative<Ftrl>(optimizer) ? 1e-6 * norm(expected) + 1e-6 : 2e-7 * norm(expected);
      CHECK(distance(now, expected) <= 2e-5 * moved[p] + rounding);
      if (reference.slots()[p].empty()) continue;
      ++trained;
      for (std::size_t slot = 0; slot < reference.slots()[p].size(); ++slot) {
        const auto values = checked_model.arenas().slots.subspan(slot * checked_model.arenas().elements,
                                                                 checked_model.arenas().elements);
        CHECK(relative_error(checked_model.read(p, values), reference.slots()[p][slot]) <= of_slots);
      }
    }
    CHECK(trained == (num_slots(optimizer) > 0 ? 8 : 0));
  }
  return clipped;
}

template <class Options>
Options with_clipping(Options options, ClippingKind kind, double bound) {
  if (kind == ClippingKind::clipnorm) options.clipnorm = bound;
  if (kind == ClippingKind::clipvalue) options.clipvalue = bound;
  if (kind == ClippingKind::global_clipnorm) options.global_clipnorm = bound;
  return options;
}

std::vector<Optimizer> optimizers_with(ClippingKind kind, double bound) {
  const auto with = [&](auto options) { return with_clipping(std::move(options), kind, bound); };
  return {with(SGD{.learning_rate = 0.3}), with(SGD{.learning_rate = 0.1, .momentum = 0.8, .nesterov = true}),
          with(Adam{.learning_rate = 0.01}), with(AdamW{.learning_rate = 0.01, .weight_decay = 0.1}),
          with(RMSprop{.learning_rate = 0.01, .momentum = 0.5, .epsilon = 1e-4, .centered = true})};
}

constexpr std::array kinds{ClippingKind::clipnorm, ClippingKind::clipvalue, ClippingKind::global_clipnorm};

/// The weights after a few steps with the same random gradients, scaled by `size`.
std::vector<float> weights_after(const Optimizer& optimizer, float size, int threads = 1) {
  CheckedModel checked_model(model, {.optimizer = optimizer, .capacity = 4, .threads = threads});
  RandomStream random(5, RandomPurpose::test, 12);
  const std::size_t elements = checked_model.arenas().elements;
  std::vector<float> gradients(elements);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (float& gradient : gradients) gradient = size * (random.uniform() - 0.5F);
    update(checked_model, optimizer, step, {{0, elements / 2}, {elements / 2, elements}},
           {gradients.data(), gradients.data()});
  }
  return {checked_model.arenas().weights.begin(), checked_model.arenas().weights.end()};
}

}  // namespace

TEST_CASE("every optimizer applies its clipping option") {
  for (const ClippingKind kind : kinds) {
    const bool by_value = kind == ClippingKind::clipvalue;
    for (const Optimizer& optimizer : optimizers_with(kind, by_value ? 0.002 : 0.05))
      CHECK(check_steps(optimizer) == 6);
    // Only some of the gradients exceed these bounds.
    const double half = by_value ? 0.05 : (kind == ClippingKind::clipnorm ? 0.3 : 0.6);
    for (const Optimizer& optimizer : optimizers_with(kind, half)) check_steps(optimizer);
  }
}

TEST_CASE("clipping below the bound changes no bit") {
  const std::vector<Optimizer> unclipped = optimizers_with(ClippingKind::none, 0);
  for (const ClippingKind kind : kinds) {
    const std::vector<Optimizer> clipped = optimizers_with(kind, 1e6);
    for (std::size_t i = 0; i < clipped.size(); ++i) {
      INFO(describe_clipping(clipped[i]));
      CHECK(weights_after(clipped[i], 1.0F) == weights_after(unclipped[i], 1.0F));
    }
  }
}

TEST_CASE("clipping keeps zero gradients and the direction of huge ones") {
  for (const ClippingKind kind : kinds) {
    const SGD sgd = with_clipping(SGD{.learning_rate = 0.5}, kind, 0.25);
    INFO(describe_clipping(sgd));
    CheckedModel checked_model(model, {.optimizer = sgd, .capacity = 4});
    const std::vector<float> before(checked_model.arenas().weights.begin(), checked_model.arenas().weights.end());
    const std::size_t elements = before.size();
    std::vector<float> gradients(elements, 0.0F);
    // Uses the last trainable parameter: norms exclude statistics, and these would be averaged with the zeros.
    const ParameterSpec* kernel = nullptr;
    for (const ParameterSpec& parameter : checked_model.plan().graph.parameters) {
      if (parameter.rule == UpdateRule::optimizer) kernel = &parameter;
    }
    REQUIRE(kernel != nullptr);
    const Range shard{kernel->offset, kernel->offset + kernel->storage};
    update(checked_model, sgd, 1, {shard}, {gradients.data()});
    CHECK(std::equal(before.begin(), before.end(), checked_model.arenas().weights.begin()));

    gradients[kernel->offset] = 1e30F;  // its square overflows a float
    update(checked_model, sgd, 2, {shard}, {gradients.data()});
    std::vector<float> expected = before;
    expected[kernel->offset] -= 0.125F;
    CHECK(std::equal(expected.begin(), expected.end(), checked_model.arenas().weights.begin()));
  }
}

TEST_CASE("clipping does not depend on the number of threads") {
  for (const ClippingKind kind : kinds) {
    const SGD sgd = with_clipping(SGD{.learning_rate = 0.5}, kind, 0.25);
    CHECK(weights_after(sgd, 1.0F, 3) == weights_after(sgd, 1.0F));
  }
}

/// Every optimizer with Keras' defaults and a larger rate, changed by `change`.
template <typename Change>
std::vector<Optimizer> every_optimizer(const Change& change) {
  std::vector<Optimizer> all = testing::complete({});
  for (Optimizer& optimizer : all) {
    std::visit(
        [&]<typename T>(T& options) {
          options.learning_rate = std::is_same_v<T, Adadelta> ? 1.0 : 0.02;
          if constexpr (requires { options.epsilon; }) options.epsilon = 1e-4;
          change(options);
        },
        optimizer);
  }
  return all;
}

TEST_CASE("every optimizer decays weights, accumulates gradients and keeps averages") {
  for (const Optimizer& optimizer : every_optimizer([](auto& options) { options.weight_decay = 0.1; }))
    check_steps(optimizer);
  for (const Optimizer& optimizer : every_optimizer([](auto& options) {
         options.gradient_accumulation_steps = 2;
         options.clipnorm = 0.05;
       }))
    check_steps(optimizer);
  for (const Optimizer& optimizer : every_optimizer([](auto& options) {
         options.use_ema = true;
         options.ema_momentum = 0.75;
         options.ema_overwrite_frequency = 2;
       }))
    check_steps(optimizer);
  for (const Optimizer& optimizer : every_optimizer([](auto& options) {
         options.use_ema = true;
         options.gradient_accumulation_steps = 3;
         options.ema_overwrite_frequency = 1;
         options.clipvalue = 0.01;
         options.weight_decay = 0.01;
       }))
    check_steps(optimizer);
}

TEST_CASE("every optimizer follows its formula") {
  for (const Optimizer& optimizer : every_optimizer([](auto& /*options*/) {})) check_steps(optimizer);
  for (const Optimizer& optimizer : every_optimizer([](auto& options) {
         if constexpr (requires { options.beta_1; }) options.beta_1 = 0.6;
         if constexpr (requires { options.beta_2; }) options.beta_2 = 0.8;
         if constexpr (requires { options.rho; }) options.rho = 0.7;
         if constexpr (requires { options.amsgrad; }) options.amsgrad = true;
         if constexpr (requires { options.initial_accumulator_value; }) options.initial_accumulator_value = 0.3;
         if constexpr (requires { options.learning_rate_power; }) {
           options.learning_rate_power = -0.7;
           options.l1_regularization_strength = 0.001;
           options.l2_regularization_strength = 0.1;
           options.l2_shrinkage_regularization_strength = 0.05;
           options.beta = 0.2;
         }
       }))
    check_steps(optimizer);
  check_steps(SGD({.learning_rate = 0.3}));
  check_steps(SGD({.learning_rate = 0.1, .momentum = 0.9}));
  check_steps(SGD({.learning_rate = 0.1, .momentum = 0.8, .nesterov = true}));
  check_steps(Adam({.learning_rate = 0.01}));
  check_steps(Adam({.learning_rate = 0.02, .beta_1 = 0.5, .beta_2 = 0.75, .epsilon = 1e-3}));
  check_steps(AdamW({.learning_rate = 0.01, .weight_decay = 0.1}));
  // A learning rate that changes with every step.
  const ExponentialDecay halving({.initial_learning_rate = 0.3, .decay_steps = 1, .decay_rate = 0.5});
  check_steps(SGD({.learning_rate = halving}));
  check_steps(SGD({.learning_rate = halving, .momentum = 0.9}));
  check_steps(SGD({.learning_rate = halving, .momentum = 0.8, .nesterov = true}));
  check_steps(Adam({.learning_rate = halving}));
  check_steps(AdamW({.learning_rate = halving, .weight_decay = 0.1}));
  check_steps(RMSprop({.learning_rate = halving, .rho = 0.8, .epsilon = 1e-4}));
  check_steps(RMSprop({.learning_rate = 0.01, .rho = 0.8, .epsilon = 1e-4}));
  check_steps(RMSprop({.learning_rate = 0.01, .momentum = 0.7, .epsilon = 1e-4}));
  check_steps(RMSprop({.learning_rate = 0.01, .rho = 0.8, .epsilon = 1e-4, .centered = true}));
  check_steps(RMSprop({.learning_rate = 0.01, .rho = 0.7, .momentum = 0.5, .epsilon = 1e-4, .centered = true}));
}

TEST_CASE("metrics are summed over all sources and weights outside a shard are untouched") {
  CheckedModel checked_model(model, {.capacity = 4});
  const ParameterSpec& metrics = checked_model.plan().graph.parameters.back();
  REQUIRE(metrics.rule == UpdateRule::assign);
  std::vector<float> first(checked_model.arenas().elements, 1.5F);
  std::vector<float> second(checked_model.arenas().elements, 2.25F);
  const std::array<const float*, 2> sources{first.data(), second.data()};
  const std::vector<float> before(checked_model.arenas().weights.begin(), checked_model.arenas().weights.end());
  checked_model.executable().update({metrics.offset, metrics.offset + metrics.storage, sources}, SGD(), 1);
  checked_model.executable().update({7, 7, {}}, SGD(), 1);  // an empty shard, as on a rank without one
  std::vector<float> expected = before;
  std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(metrics.offset), metrics.storage, 3.75F);
  CHECK(std::equal(expected.begin(), expected.end(), checked_model.arenas().weights.begin()));
}
