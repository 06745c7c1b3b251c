// See checked_model.hpp.
//
// The gradients of relu and max pooling are discontinuous: if an input is within rounding of the edge, float and double
// may take different sides, which no tolerance distinguishes from a bug. Where gradients differ by more than the
// tolerance, the reference's own gradients are recomputed with inputs and weights perturbed by a float's rounding, and
// their change is added to the tolerance. A bug in the backend does not change the reference.
#include "checked_model.hpp"

#include "backend/make_backend.hpp"
#include "collective/make_communicator.hpp"
#include "core/environment.hpp"
#include "core/random.hpp"
#include "graph/lower.hpp"
#include "losses/loss_registry.hpp"
#include "optimizers/optimizer_registry.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace lockstep::testing {

namespace {

constexpr std::size_t examples_in_store = 23;

reference::Values widen(std::span<const float> values) { return {values.begin(), values.end()}; }

std::vector<float> narrow(const reference::Values& values) { return {values.begin(), values.end()}; }

void perturb(reference::Values& values, RandomStream& random) {
  for (double& value : values) value *= 1 + 4e-6 * (random.uniform() - 0.5);
}

}  // namespace

std::string describe(const Architecture& model) {
  std::string text;
  for (const LayerInfo& layer : model.layers()) text += layer.class_name + layer.output_shape.to_string() + " ";
  return text;
}

std::shared_ptr<Backend> make_backend_under_test(int threads, bool deterministic, std::optional<Layout> layout,
                                                 Convolutions convolutions) {
  const Environment environment = current_environment();
  if (!layout) layout = layout_from(value_of(environment, "LOCKSTEP_LAYOUT"));
  if (value_of(environment, "LOCKSTEP_TEST_DEVICE") != "cuda") return make_cpu_backend(threads, layout, convolutions);
  static std::array<std::weak_ptr<Backend>, 2> made;
  std::weak_ptr<Backend>& known = made[deterministic ? 1 : 0];
  if (auto backend = known.lock()) return backend;
  std::string why_not;
  std::shared_ptr<Backend> backend = make_cuda_backend({.deterministic = deterministic}, why_not);
  if (!backend) throw UsageError("LOCKSTEP_TEST_DEVICE=cuda, but " + why_not);
  known = backend;
  return backend;
}

bool is_refusal_of_gpus(const std::exception& error) {
  return value_of(current_environment(), "LOCKSTEP_TEST_DEVICE") == "cuda" &&
         std::string(error.what()).find("is not supported on GPUs yet") != std::string::npos;
}

CheckedModel::CheckedModel(const Architecture& model, const CheckedModelOptions& options)
    : options_(options),
      examples_(make_examples(model, options.loss, examples_in_store, options.seed, options.pixels)),
      reference_(model, options.loss, options.optimizer, options.seed),
      backend_(make_backend_under_test(options.threads, true, options.layout, options.convolutions)) {
  const bool has_classes = model.output_shape().rank() == 1 || is_per_vector(options.loss);
  const std::vector<Metric> metrics(has_classes ? 1 : 0, accuracy);
  Graph graph =
      lower(model, options.loss, options.mixed_bfloat16 ? Precision::mixed_bfloat16 : Precision::float32, {}, metrics);
  backend_->lay_out(graph, options.capacity);
  if (options.cache_bytes > 0) graph.cache_bytes = options.cache_bytes;
  plan_ = make_plan(std::move(graph), options.plan);
  const std::size_t elements = plan_.elements;
  const std::size_t weights = plan_.weight_elements;
  const auto slots = static_cast<std::size_t>(num_slots(options.optimizer));
  communicator_ = make_communicator(world_, {.device = backend_->device_streams()});
  const ArenaMemory memory =
      communicator_->allocate(elements, (weights + slots * elements + weights / 2 + 1) * sizeof(float), plan_.buckets);
  auto* mirrored = reinterpret_cast<float*>(memory.mirrored.data());
  arenas_ = {.gradients = memory.gradients,
             .weights = {mirrored, weights},
             .slots = {mirrored + weights, slots * elements},
             .low_precision = {reinterpret_cast<std::uint16_t*>(mirrored + weights + slots * elements),
                               options.mixed_bfloat16 ? weights : 0},
             .elements = elements};
  executable_ = backend_->compile(plan_.graph, plan_.compute, arenas_, options.capacity);
  write_initial_slots();
  step_ = std::make_unique<Step>(plan_, *executable_, *communicator_);
  // Equal biases or statistics would hide bugs that mix them up.
  RandomStream random(options.seed, RandomPurpose::test, 1);
  for (std::size_t p = 0; p < reference_.weights().size(); ++p) {
    for (double& value : reference_.weights()[p]) value += 0.1 * (random.uniform() - 0.5);
  }
  share_weights();
}

std::vector<float> CheckedModel::read(std::size_t parameter, std::span<const float> arena) const {
  std::vector<float> values(static_cast<std::size_t>(plan_.graph.parameters[parameter].info.shape.elements()));
  executable_->read_parameter(parameter, arena, values);
  return values;
}

void CheckedModel::write_initial_slots() {
  const Slots kinds = slots_of(options_.optimizer);
  for (std::size_t slot = 0; slot < kinds.size(); ++slot) {
    if (kinds[slot].initial_value == 0) continue;  // the arenas are zeroed already
    const std::span<float> arena = arenas_.slots.subspan(slot * arenas_.elements, arenas_.elements);
    for (std::size_t p = 0; p < reference_.weights().size(); ++p) {
      const std::vector<float> values(reference_.weights()[p].size(), kinds[slot].initial_value);
      executable_->write_parameter(p, values, arena);
    }
  }
}

void CheckedModel::share_weights() {
  for (std::size_t p = 0; p < reference_.weights().size(); ++p) {
    const std::vector<float> values = narrow(reference_.weights()[p]);
    executable_->write_parameter(p, values, arenas_.weights);
    reference_.weights()[p] = widen(values);
  }
  executable_->update_low_precision_copies();
}

StepContext CheckedModel::draw(std::size_t count) {
  RandomStream random(options_.seed, RandomPurpose::test, 100 + draws_++);
  drawn_.resize(count);
  for (std::uint32_t& example : drawn_) example = random.below(examples_in_store);
  StepContext context;
  inputs_.clear();
  for (const InputArray& array : examples_.data.inputs)
    std::visit([&](const auto& values) { inputs_.emplace_back(values.data()); }, array.values);
  context.data.inputs = inputs_;
  std::visit([&](const auto& targets) { target_ = targets.data(); }, examples_.data.target().values);
  context.data.targets = {&target_, 1};
  context.examples = drawn_;
  context.seed = options_.seed;
  context.gradient_scale = 1.0 / static_cast<double>(count);
  if (!options_.weighted) return context;
  weights_.resize(count);
  for (float& weight : weights_) weight = 2 * random.uniform();
  context.sample_weights = weights_;
  context.total_weight = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  reference_.weigh(widen(weights_));
  return context;
}

void CheckedModel::train(const std::vector<std::int64_t>& replicas) {
  const std::int64_t count = std::accumulate(replicas.begin(), replicas.end(), std::int64_t{0});
  StepContext context = draw(static_cast<std::size_t>(count));
  rows_.clear();
  std::size_t begin = 0;
  for (const std::int64_t size : replicas) {
    if (size > 0) rows_.push_back({begin, begin + static_cast<std::size_t>(size)});
    begin += static_cast<std::size_t>(size);
  }
  const std::int64_t global_batch = count + 1;  // as if another rank had one example
  context.replicas = rows_;
  context.total_replicas = rows_.size();
  context.gradient_scale = 1.0 / static_cast<double>(global_batch);
  context.step = steps_;
  context.training = true;
  step_->train(context, options_.optimizer, ++steps_);

  const reference::Values inputs = examples_.inputs_of(drawn_);
  const reference::Values targets = examples_.targets_of(drawn_);
  const reference::Sums sums = reference_.compute_gradients(inputs, targets, count, global_batch, replicas);
  const ParameterSpec& metrics = plan_.graph.parameters[static_cast<std::size_t>(plan_.graph.metrics_parameter())];
  compare_sums(arenas_.weights.subspan(metrics.offset, metrics.storage), sums, static_cast<std::size_t>(count));
  compare_gradients(inputs, targets, replicas);

  // The update is checked with the backend's gradient; the optimizers' own tests are more precise.
  const std::vector<reference::Values> before = reference_.weights();
  reference_.apply_gradients();
  for (std::size_t p = 0; p < before.size(); ++p) {
    const std::vector<float> weights = read(p, arenas_.weights);
    if (plan_.graph.parameters[p].rule == UpdateRule::frozen) CHECK(weights == narrow(before[p]));
    const double moved = distance(narrow(before[p]), reference_.weights()[p]);
    INFO("weights of " << plan_.graph.parameters[p].name);
    CHECK(distance(weights, reference_.weights()[p]) <=
          0.1 * moved + options_.tolerance * (norm(reference_.weights()[p]) + 1));
    reference_.weights()[p] = widen(weights);
  }
}

void CheckedModel::compare_gradients(const reference::Values& inputs, const reference::Values& targets,
                                     const std::vector<std::int64_t>& replicas) {
  double largest = 0;
  for (const reference::Values& gradient : reference_.gradients()) largest = std::max(largest, norm(gradient));
  std::vector<double> waver;
  for (std::size_t p = 0; p < reference_.gradients().size(); ++p) {
    if (plan_.graph.parameters[p].rule == UpdateRule::frozen) continue;  // it has no gradient
    const std::vector<float> found = read(p, arenas_.gradients);
    const reference::Values expected = reference_.gradients()[p];
    const double error = distance(found, expected);
    // Where terms cancel, rounding errors of their size remain, so the scale includes other gradients' norms and that
    // of a probability. It alone bounds gradients that are exactly zero (a bias before BatchNormalization).
    const double scale = std::max({norm(expected), 0.1 * largest, 0.03});
    double allowed =
        norm(expected) < 1e-10 * largest ? std::max(1e-3, options_.tolerance) * largest : options_.tolerance * scale;
    if (!(error <= allowed)) {
      if (waver.empty()) waver = sensitivity(inputs, targets, replicas);
      allowed += 4 * waver[p];
    }
    INFO("gradient of " << plan_.graph.parameters[p].name << ", step " << steps_ << " on " << drawn_.size()
                        << " examples: norm " << norm(expected));
    CHECK(error <= allowed);
  }
}

/// How much each gradient changes if inputs and weights change by a float's rounding.
std::vector<double> CheckedModel::sensitivity(const reference::Values& inputs, const reference::Values& targets,
                                              const std::vector<std::int64_t>& replicas) {
  const std::vector<reference::Values> gradients = reference_.gradients();
  const std::vector<reference::Values> weights = reference_.weights();
  const auto count = static_cast<std::int64_t>(drawn_.size());
  std::vector<double> waver(gradients.size());
  for (std::uint64_t trial = 0; trial < 8; ++trial) {
    RandomStream random(options_.seed, RandomPurpose::test, 1000 + trial);
    reference::Values moved = inputs;
    perturb(moved, random);
    for (reference::Values& values : reference_.weights()) perturb(values, random);
    reference_.compute_gradients(moved, targets, count, count + 1, replicas);
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      waver[p] = std::max(waver[p], distance(narrow(reference_.gradients()[p]), gradients[p]));
    }
    reference_.weights() = weights;
  }
  reference_.compute_gradients(inputs, targets, count, count + 1, replicas);
  return waver;
}

void CheckedModel::compare_sums(std::span<const float> arena, const reference::Sums& expected,
                                std::size_t count) const {
  std::vector<float> found(arena.size());
  executable_->read(arena, found);
  CHECK(found[metric_loss] == Approx(expected.loss_sum).epsilon(options_.tolerance).margin(options_.tolerance));
  const bool counts = !plan_.graph.outputs.front().metrics.empty() && !options_.mixed_bfloat16;
  if (counts) CHECK(found[first_metric_sum] == static_cast<float>(expected.correct));
  CHECK(found[metric_count] == static_cast<float>(count));
}

void CheckedModel::infer(std::size_t count) {
  const StepContext context = draw(count);
  step_->infer(context);
  const reference::Values inputs = examples_.inputs_of(drawn_);
  const reference::Values targets = examples_.targets_of(drawn_);
  const reference::Values expected = reference_.predict(inputs, static_cast<std::int64_t>(count));
  const auto found = executable_->outputs(0).first(expected.size());
  INFO("outputs of " << count << " examples: norm " << norm(expected));
  CHECK(relative_error(found, expected) <= 2 * options_.tolerance);
  const ParameterSpec& metrics = plan_.graph.parameters[static_cast<std::size_t>(plan_.graph.metrics_parameter())];
  compare_sums(arenas_.gradients.subspan(metrics.offset, metrics.storage),
               reference_.evaluate(inputs, targets, static_cast<std::int64_t>(count)), count);
}

}  // namespace lockstep::testing
