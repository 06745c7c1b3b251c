// What an update makes of summed gradients: every optimizer, with the gradients of several ranks, in shares that cut
// parameters anywhere.
#include "core/random.hpp"
#include "support/catch.hpp"
#include "twin.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Kernels in blocks and in rows, statistics, more than a tile, less than a cache line.
const Sequential model{Input({5, 5, 3}),
                       Conv2D(33, 2, {.activation = activations::tanh}),
                       BatchNormalization({.momentum = 0.75}),
                       Flatten(),
                       Dense(7),
                       Dense(3)};

/// Cuts a gradient arena into `count` that add up to it, about.
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

void check_steps(const Optimizer& optimizer) {
  INFO(name_of(optimizer));
  Twin twin(model, {.optimizer = optimizer, .capacity = 4});
  auto& reference = twin.reference();
  RandomStream random(3, RandomPurpose::test, 11);
  std::vector<float> arena(twin.arenas().elements);
  for (std::uint64_t step = 1; step <= 6; ++step) {
    // The reference's gradient, rounded; it changes from step to step as its weights and examples do.
    const Examples examples = make_examples(model, SparseCategoricalCrossentropy(), 4, step);
    reference.compute_gradients(examples.inputs, examples.targets, 4, 4, {3, 1});
    for (std::size_t p = 0; p < reference.gradients().size(); ++p) {
      const reference::Values& gradient = reference.gradients()[p];
      twin.executable().write_parameter(p, std::vector<float>(gradient.begin(), gradient.end()), arena);
    }
    std::vector<reference::Values> before = reference.weights();
    reference.apply_gradients();

    const auto parts = split(arena, 1 + step % 4, random);
    std::vector<const float*> sources;
    for (const auto& part : parts) sources.push_back(part.data());
    for (std::size_t begin = 0; begin < arena.size();) {
      const std::size_t end = std::min(arena.size(), begin + random.below(3000));
      twin.executable().update({begin, end, sources}, optimizer, step);
      begin = end;
    }
    std::size_t trained = 0;
    for (std::size_t p = 0; p < before.size(); ++p) {
      const std::string& name = twin.plan().graph.parameters[p].name;
      INFO("step " << step << ", " << name);
      const std::vector<float> now = twin.read(p, twin.arenas().weights);
      const reference::Values& expected = reference.weights()[p];
      const std::vector<float> old(before[p].begin(), before[p].end());
      CHECK(distance(old, expected) > 0);
      CHECK(distance(now, expected) <= 2e-5 * distance(old, expected) + 2e-7 * norm(expected));
      if (reference.slots()[p].empty()) continue;
      ++trained;
      for (std::size_t slot = 0; slot < reference.slots()[p].size(); ++slot) {
        const auto values = twin.arenas().slots.subspan(slot * twin.arenas().elements, twin.arenas().elements);
        CHECK(relative_error(twin.read(p, values), reference.slots()[p][slot]) <= 1e-5);
      }
    }
    CHECK(trained == (slots_of(optimizer) > 0 ? 8 : 0));
  }
}

}  // namespace

TEST_CASE("Every optimizer steps as its formula says") {
  check_steps(SGD({.learning_rate = 0.3}));
  check_steps(SGD({.learning_rate = 0.1, .momentum = 0.9}));
  check_steps(SGD({.learning_rate = 0.1, .momentum = 0.8, .nesterov = true}));
  check_steps(Adam({.learning_rate = 0.01}));
  check_steps(Adam({.learning_rate = 0.02, .beta_1 = 0.5, .beta_2 = 0.75, .epsilon = 1e-3}));
  check_steps(AdamW({.learning_rate = 0.01, .weight_decay = 0.1}));
  // Rates that differ from step to step.
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

TEST_CASE("Metric sums are the sums of all sources, the weights beside a share stay as they are") {
  Twin twin(model, {.capacity = 4});
  const ParameterSpec& metrics = twin.plan().graph.parameters.back();
  REQUIRE(metrics.rule == UpdateRule::assign);
  std::vector<float> first(twin.arenas().elements, 1.5F);
  std::vector<float> second(twin.arenas().elements, 2.25F);
  const std::array<const float*, 2> sources{first.data(), second.data()};
  const std::vector<float> before(twin.arenas().weights.begin(), twin.arenas().weights.end());
  twin.executable().update({metrics.offset, metrics.offset + metrics.storage, sources}, SGD(), 1);
  twin.executable().update({7, 7, {}}, SGD(), 1);  // nothing to do, as on a rank without a share
  std::vector<float> expected = before;
  std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(metrics.offset), metrics.storage, 3.75F);
  CHECK(std::equal(expected.begin(), expected.end(), twin.arenas().weights.begin()));
}
