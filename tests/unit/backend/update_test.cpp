// What an update makes of summed gradients: every optimizer, clipped or not, with the gradients of several ranks, in
// shares that cut parameters anywhere.
#include "cluster/world.hpp"
#include "collective/make_communicator.hpp"
#include "core/random.hpp"
#include "plan/norm_clipping.hpp"
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

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Updates all shares as a step does where norms are clipped: when all of them have come.
void update(Twin& twin, const Optimizer& optimizer, std::uint64_t step, const std::vector<Range>& shares,
            const std::vector<const float*>& sources) {
  const World world;
  const auto communicator = make_communicator(world, Transport::automatic);
  const Clipping clipping = clipping_of(optimizer);
  NormClipping norms(twin.plan(), twin.executable(), *communicator);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const UpdateShare share{shares[i].begin, shares[i].end, sources};
    if (clipping.needs_norms()) {
      norms.hold(i, share);
    } else {
      twin.executable().update(share, optimizer, step);
    }
  }
  if (clipping.needs_norms()) norms.agree(clipping);
  for (const auto& held : norms.held()) twin.executable().update(held.share, optimizer, step);
}

std::string describe_clipping(const Optimizer& optimizer) {
  const Clipping clipping = clipping_of(optimizer);
  return std::string(name_of(optimizer)) + " " + std::string(name_of(clipping.kind)) + " " +
         std::to_string(clipping.bound);
}

/// In how many of the steps gradients were clipped, of all variables together.
int check_steps(const Optimizer& optimizer) {
  INFO(describe_clipping(optimizer));
  int clipped = 0;
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
    clipped += reference.clipped_gradients() != reference.gradients() ? 1 : 0;
    reference.apply_gradients();

    const auto parts = split(arena, 1 + step % 4, random);
    std::vector<const float*> sources;
    for (const auto& part : parts) sources.push_back(part.data());
    std::vector<Range> shares;
    for (std::size_t begin = 0; begin < arena.size(); begin = shares.back().end) {
      shares.push_back({begin, std::min(arena.size(), begin + random.below(3000))});
    }
    update(twin, optimizer, step, shares, sources);
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
  return {SGD(with(SGDOptions{.learning_rate = 0.3})),
          SGD(with(SGDOptions{.learning_rate = 0.1, .momentum = 0.8, .nesterov = true})),
          Adam(with(AdamOptions{.learning_rate = 0.01})),
          AdamW(with(AdamWOptions{.learning_rate = 0.01, .weight_decay = 0.1})),
          RMSprop(with(RMSpropOptions{.learning_rate = 0.01, .momentum = 0.5, .epsilon = 1e-4, .centered = true}))};
}

constexpr std::array kinds{ClippingKind::clipnorm, ClippingKind::clipvalue, ClippingKind::global_clipnorm};

/// The weights after a few steps by the same gradients, which are `size` times those of a seed.
std::vector<float> weights_after(const Optimizer& optimizer, float size, int threads = 1) {
  Twin twin(model, {.optimizer = optimizer, .capacity = 4, .threads = threads});
  RandomStream random(5, RandomPurpose::test, 12);
  const std::size_t elements = twin.arenas().elements;
  std::vector<float> gradients(elements);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (float& gradient : gradients) gradient = size * (random.uniform() - 0.5F);
    update(twin, optimizer, step, {{0, elements / 2}, {elements / 2, elements}}, {gradients.data(), gradients.data()});
  }
  return {twin.arenas().weights.begin(), twin.arenas().weights.end()};
}

}  // namespace

TEST_CASE("Every optimizer clips as its option says") {
  for (const ClippingKind kind : kinds) {
    const bool by_value = kind == ClippingKind::clipvalue;
    for (const Optimizer& optimizer : optimizers_with(kind, by_value ? 0.002 : 0.05))
      CHECK(check_steps(optimizer) == 6);
    // Some steps' gradients, and some variables', are below the bound.
    const double half = by_value ? 0.05 : (kind == ClippingKind::clipnorm ? 0.3 : 0.6);
    for (const Optimizer& optimizer : optimizers_with(kind, half)) check_steps(optimizer);
  }
}

TEST_CASE("Below the bound nothing changes, not even a bit") {
  const std::vector<Optimizer> unclipped = optimizers_with(ClippingKind::none, 0);
  for (const ClippingKind kind : kinds) {
    const std::vector<Optimizer> clipped = optimizers_with(kind, 1e6);
    for (std::size_t i = 0; i < clipped.size(); ++i) {
      INFO(describe_clipping(clipped[i]));
      CHECK(weights_after(clipped[i], 1.0F) == weights_after(unclipped[i], 1.0F));
    }
  }
}

TEST_CASE("Gradients of zero stay zero, and huge ones are clipped to their direction") {
  for (const ClippingKind kind : kinds) {
    const SGD sgd(with_clipping(SGDOptions{.learning_rate = 0.5}, kind, 0.25));
    INFO(describe_clipping(sgd));
    Twin twin(model, {.optimizer = sgd, .capacity = 4});
    const std::vector<float> before(twin.arenas().weights.begin(), twin.arenas().weights.end());
    const std::size_t elements = before.size();
    std::vector<float> gradients(elements, 0.0F);
    // Statistics, which no norm has in it, would be averaged with the zeros: the last parameter that is trained alone.
    const ParameterSpec* kernel = nullptr;
    for (const ParameterSpec& parameter : twin.plan().graph.parameters) {
      if (parameter.rule == UpdateRule::optimizer) kernel = &parameter;
    }
    REQUIRE(kernel != nullptr);
    const Range share{kernel->offset, kernel->offset + kernel->storage};
    update(twin, sgd, 1, {share}, {gradients.data()});
    CHECK(std::equal(before.begin(), before.end(), twin.arenas().weights.begin()));

    gradients[kernel->offset] = 1e30F;  // whose square no float holds
    update(twin, sgd, 2, {share}, {gradients.data()});
    std::vector<float> expected = before;
    expected[kernel->offset] -= 0.125F;
    CHECK(std::equal(expected.begin(), expected.end(), twin.arenas().weights.begin()));
  }
}

TEST_CASE("Any number of threads clips to the same bits") {
  for (const ClippingKind kind : kinds) {
    const SGD sgd(with_clipping(SGDOptions{.learning_rate = 0.5}, kind, 0.25));
    CHECK(weights_after(sgd, 1.0F, 3) == weights_after(sgd, 1.0F));
  }
}

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
