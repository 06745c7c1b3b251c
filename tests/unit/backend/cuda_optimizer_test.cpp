// The optimizers' functors on CUDA against the CPU's, and clipping against its definition.
#include "backend/cpu/optimizer_step.hpp"
#include "backend/cuda/gradient_norm_functors.hpp"
#include "backend/cuda/optimizer_functors.hpp"
#include "backend/cuda/update_ranges.hpp"
#include "cuda_functors.hpp"
#include "support/optimizers.hpp"

#include <limits>
#include <utility>

using namespace lockstep;
using namespace lockstep::cuda;

TEST_CASE("CUDA: optimizer steps match the CPU") {
  constexpr std::size_t elements = 64;
  std::vector<Optimizer> optimizers{SGD({.learning_rate = 0.1}), SGD({.learning_rate = 0.1, .momentum = 0.9}),
                                    SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}),
                                    Adam({.learning_rate = 0.01}), AdamW({.learning_rate = 0.01, .weight_decay = 0.1})};
  const CosineDecay schedule({.initial_learning_rate = 0.1, .decay_steps = 15});
  optimizers.emplace_back(SGD({.learning_rate = schedule, .momentum = 0.9}));
  optimizers.emplace_back(AdamW({.learning_rate = schedule, .weight_decay = 0.1}));
  optimizers.emplace_back(RMSprop({.learning_rate = schedule}));
  for (const double momentum : {0.0, 0.8}) {
    for (const bool centered : {false, true}) {
      optimizers.emplace_back(RMSprop({.learning_rate = 0.01, .momentum = momentum, .centered = centered}));
    }
  }
  optimizers.emplace_back(Adam({.amsgrad = true}));
  optimizers.emplace_back(
      SGD({.learning_rate = 0.1, .weight_decay = 0.1, .use_ema = true, .ema_overwrite_frequency = 3}));
  optimizers.emplace_back(Nadam({.clipvalue = 0.3, .use_ema = true, .gradient_accumulation_steps = 4}));
  optimizers = testing::complete(std::move(optimizers));
  Graph graph;
  graph.parameters.push_back({.name = "w", .info = {"w", Shape{elements}, Initializer::zeros}, .storage = elements});
  for (std::size_t which = 0; which < optimizers.size(); ++which) {
    const Optimizer& optimizer = optimizers[which];
    INFO("optimizer " << which << ", " << keras_name(optimizer));
    RandomStream random = stream_of(10 + which);
    std::vector<float> weights = random_floats(random, elements);
    std::vector<float> our_weights = weights;
    std::vector<float> slots(4 * elements, 0.1F);
    std::vector<float> our_slots = slots;
    std::vector<std::uint16_t> low(elements);
    std::vector<std::uint16_t> our_low(elements);
    for (std::uint64_t iteration = 1; iteration <= 20; ++iteration) {
      std::vector<float> gradients = random_floats(random, elements);
      const float* source = gradients.data();
      const Arenas arenas{gradients, weights, slots, low, elements};
      apply_optimizer(graph, arenas, {0, elements, {&source, 1}}, optimizer, iteration, 1);
      const StepArguments arguments{.update_rule = update_rule_of(optimizer, iteration),
                                    .shared_update = shared_update(optimizer, iteration)};
      const float bound = static_cast<float>(clipping_of(optimizer).bound);
      with_update_rule(optimizer, 1, [&]<typename Rule>(const Rule& /*first*/) {
        for_each(elements, UpdateElement<Rule>{&arguments, gradients.data(), our_weights.data(), our_slots.data(),
                                               elements, our_low.data(), nullptr, bound});
      });
    }
    CHECK(error_of(our_weights, weights) < 1e-5);
    if (num_slots(optimizer) > 0) CHECK(error_of(our_slots, slots) < 1e-5);
    for (std::size_t i = 0; i < elements; ++i) CHECK(our_low[i] == BFloat16(our_weights[i]).bits);
  }
}

TEST_CASE("CUDA: clipvalue matches the CPU") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gradients{0.0F, -0.0F, 0.25F, -0.25F, 3.0F, -3.0F, infinity, -infinity, std::nanf("")};
  const std::size_t elements = gradients.size();
  const SGD sgd({.learning_rate = 1, .clipvalue = 0.25});
  std::vector<float> weights(elements, 1.0F);
  std::vector<float> our_weights = weights;
  Graph graph;
  graph.parameters.push_back({.name = "w", .info = {"w", Shape{9}, Initializer::zeros}, .storage = elements});
  std::vector<float> copy = gradients;
  const float* source = gradients.data();
  apply_optimizer(graph, {copy, weights, {}, {}, elements}, {0, elements, {&source, 1}}, sgd, 1, 1);
  const StepArguments arguments{.update_rule = update_rule_of(sgd, 1)};
  for_each(elements, UpdateElement<SGDUpdate>{.arguments = &arguments,
                                              .gradients = gradients.data(),
                                              .weights = our_weights.data(),
                                              .slots = nullptr,
                                              .slot_stride = elements,
                                              .low_precision = nullptr,
                                              .bound = 0.25F});
  CHECK(std::isnan(weights.back()));
  CHECK(std::isnan(our_weights.back()));
  weights.pop_back();
  our_weights.pop_back();
  CHECK(our_weights == weights);
}

TEST_CASE("CUDA: gradient norms summed in parts give the defined clip scales") {
  // Sizes around a multiple of the lanes. The second gradient comes in two parts, like the chunks of a Dense kernel.
  const std::vector<std::vector<std::size_t>> sizes{{1}, {700, 33}, {32}, {31}, {5000}};
  constexpr double bound = 5;
  std::vector<double> lanes(sizes.size() * norm_lanes);
  std::vector<double> squared_norms(sizes.size());
  std::vector<float> clip_scales(sizes.size());
  RandomStream random = stream_of(21);
  for (int step = 0; step < 3; ++step) {  // a step must not see values of the one before
    std::vector<double> norms;
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      double sum = 0;
      for (const std::size_t count : sizes[p]) {
        const std::vector<float> gradients = random_floats(random, count);
        for (const float g : gradients) sum += static_cast<double>(g) * g;
        // As reduce_channels does on the device.
        const auto rows = static_cast<Index>((count + norm_lanes - 1) / norm_lanes);
        const SquaredGradientTerms terms{gradients.data(), count};
        for (Index lane = 0; lane < norm_lanes; ++lane) {
          Pair squares;
          for (Index row = 0; row < rows; ++row)
            squares.first += terms(std::size_t{row} * norm_lanes + lane, lane).first;
          AddLane{lanes.data() + p * norm_lanes}(lane, squares);
        }
      }
      norms.push_back(std::sqrt(sum));
    }
    for_each(sizes.size(), SumLanes{lanes.data(), squared_norms.data()});
    for (const bool together : {false, true}) {
      for_each(sizes.size(), MakeClipScale{squared_norms.data(), clip_scales.data(), static_cast<Index>(sizes.size()),
                                           bound, together});
      const double all = std::hypot(norms[0], norms[1], std::hypot(norms[2], norms[3], norms[4]));
      for (std::size_t p = 0; p < sizes.size(); ++p) {
        const double norm = together ? all : norms[p];
        CHECK(clip_scales[p] == Approx(norm <= bound ? 1.0 : bound / norm).epsilon(1e-6));
      }
      CHECK(clip_scales[0] == (together ? clip_scales[4] : 1.0F));
    }
  }
  const float huge = 1e30F;  // its square overflows a float
  CHECK(SquaredGradientTerms{&huge, 1}(0, 0).first == Approx(1e60));
  CHECK(SquaredGradientTerms{&huge, 1}(1, 1).first == 0.0);
  squared_norms = {std::nan(""), 1.0, 0.0};
  for_each(3, MakeClipScale{squared_norms.data(), clip_scales.data(), 3, bound, false});
  CHECK(std::isnan(clip_scales[0]));
  CHECK(clip_scales[1] == 1.0F);
  CHECK(clip_scales[2] == 1.0F);
  for_each(3, MakeClipScale{squared_norms.data(), clip_scales.data(), 3, bound, true});
  CHECK(std::isnan(clip_scales[1]));
}

TEST_CASE("CUDA: a shard is split where the update rule changes") {
  Graph graph;
  const auto add = [&](std::size_t offset, std::size_t storage, UpdateRule rule, float momentum) {
    ParameterSpec parameter{.name = {}, .info = {.name = {}, .shape = {}, .initializer = Initializer::zeros}};
    parameter.offset = offset;
    parameter.storage = storage;
    parameter.rule = rule;
    parameter.momentum = momentum;
    graph.parameters.push_back(parameter);
  };
  add(64, 10, UpdateRule::moving_average, 0.9F);
  add(16, 20, UpdateRule::optimizer, 0);
  add(48, 16, UpdateRule::optimizer, 0);
  add(0, 16, UpdateRule::assign, 0);
  const UpdateRange metrics{0, 16, UpdateRule::assign, 0, 3};
  const UpdateRange statistics{64, 74, UpdateRule::moving_average, 0.9F, 0};
  CHECK(update_ranges(graph, 0, 80) ==
        std::vector<UpdateRange>{metrics, {16, 64, UpdateRule::optimizer, 0, 1}, statistics});
  CHECK(update_ranges(graph, 20, 60) == std::vector<UpdateRange>{{20, 60, UpdateRule::optimizer, 0, 1}});
  CHECK(update_ranges(graph, 36, 48).empty());  // padding only
  const std::vector<UpdateRange> apart{
      metrics, {16, 36, UpdateRule::optimizer, 0, 1}, {48, 64, UpdateRule::optimizer, 0, 2}, statistics};
  CHECK(update_ranges(graph, 0, 80, true) == apart);
}
