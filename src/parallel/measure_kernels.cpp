// See measure_kernels.hpp. Images and weights are random, because constant ones would make branches more predictable
// and gathering faster than in training.
#include "parallel/measure_kernels.hpp"

#include "core/aligned_buffer.hpp"
#include "core/clock.hpp"
#include "core/overloaded.hpp"
#include "core/random.hpp"
#include "losses/loss_registry.hpp"
#include "plan/all_to_all_memory.hpp"

#include <lockstep/losses/losses.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

namespace lockstep {

namespace {

/// A plan is measured for min_rounds rounds, but at most max_seconds, and for further rounds until min_seconds.
constexpr double max_seconds = 0.1;
constexpr double min_seconds = 0.03;
constexpr int min_rounds = 5;

/// The pool that examples are gathered from has this many batches, so that it exceeds the cache.
constexpr std::size_t pool_batches = 8;

/// Memory for the arenas of a plan that is only measured.
class TrialArenas {
 public:
  TrialArenas(std::size_t elements, std::size_t weights, std::size_t slots, bool low_precision)
      : gradients_(elements * sizeof(float)),
        weights_(weights * sizeof(float)),
        slots_(elements * slots * sizeof(float)),
        low_precision_(low_precision ? weights * sizeof(std::uint16_t) : 0) {
    for (AlignedBuffer* buffer : {&gradients_, &weights_, &slots_, &low_precision_}) {
      std::ranges::fill(buffer->as<std::byte>(), std::byte{0});
    }
    arenas.gradients = gradients_.as<float>();
    arenas.weights = weights_.as<float>();
    arenas.slots = slots_.as<float>();
    arenas.low_precision = low_precision_.as<std::uint16_t>();
    arenas.elements = elements;
  }

  Arenas arenas;

 private:
  AlignedBuffer gradients_, weights_, slots_, low_precision_;
};

/// Examples like those of MNIST: gray pixels on black, with random classes.
class TrialData {
 public:
  TrialData(const Graph& graph, std::size_t num_examples) {
    RandomStream random(0, RandomPurpose::calibration, 0);
    const std::size_t pool = pool_batches * std::max<std::size_t>(num_examples, 1);
    const bool holds_indices =  // of which only 0 is certain to be valid
        std::ranges::any_of(graph.forward, [](const Operation& operation) { return reads_indices(operation.kind); });
    for (const GraphInput& input : graph.inputs) {
      const auto pixels = static_cast<std::size_t>(graph.tensors[input.tensor].elements());
      std::vector<std::uint8_t>& images = images_.emplace_back(pool * pixels);
      for (std::size_t image = 0; image < pool && !holds_indices; ++image) {
        const std::size_t drawn = pixels / 4;
        const auto begin = static_cast<std::size_t>(random.uniform() * static_cast<float>(pixels - drawn));
        std::uint8_t* const first = images.data() + image * pixels + begin;
        std::generate_n(first, drawn, [&] { return static_cast<std::uint8_t>(random.next()); });
      }
      inputs_.emplace_back(images.data());
    }
    context.data.inputs = inputs_;
    context.data.examples = pool;
    for (const GraphOutput& output : graph.outputs) {
      const TensorSpec& tensor = graph.tensors[output.tensor];
      const auto elements = static_cast<std::size_t>(tensor.elements());
      if (takes_classes(output.loss)) {
        const auto vectors = static_cast<std::size_t>(tensor.height * tensor.width);
        std::vector<std::int32_t>& classes = classes_.emplace_back(pool * vectors);
        for (std::int32_t& each : classes)
          each = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(tensor.channels)));
        targets_.emplace_back(classes.data());
      } else {
        targets_.emplace_back(dense_.emplace_back(pool * elements).data());
      }
    }
    context.data.targets = targets_;
    order_.resize(num_examples);
    for (std::uint32_t& each : order_) each = random.below(static_cast<std::uint32_t>(pool));
    replicas_ = {{0, num_examples}};
    context.examples = order_;
    context.replicas = replicas_;
    context.gradient_scale = 1.0 / static_cast<double>(std::max<std::size_t>(num_examples, 1));
    context.training = true;
  }

  StepContext context;

 private:
  std::vector<std::vector<std::uint8_t>> images_;  ///< by input of the model
  std::vector<InputPointer> inputs_;
  std::vector<std::vector<std::int32_t>> classes_;  ///< of outputs that take classes
  std::vector<std::vector<float>> dense_;           ///< of the others
  std::vector<TargetPointer> targets_;              ///< by output of the model
  std::vector<std::uint32_t> order_;
  std::vector<Range> replicas_;
};

/// A compiled plan that runs without other ranks.
class Trial {
 public:
  Trial(const Backend& backend, const Plan& plan, const Optimizer& optimizer, std::size_t num_examples,
        int ranks_on_host, int ranks)
      : plan_(plan),
        optimizer_(optimizer),
        ranks_per_host_(static_cast<std::size_t>(ranks_on_host)),
        sources_(ranks > 1 ? 2 : 1),
        common_(plan.elements, plan.weight_elements, static_cast<std::size_t>(num_slots(optimizer)),
                plan.graph.mixed_bfloat16),
        local_(plan.local_elements, plan.local_weight_elements, static_cast<std::size_t>(num_slots(optimizer)),
               plan.graph.mixed_bfloat16),
        all_to_alls_(plan.graph),
        peer_gradients_(ranks > 1 ? plan.elements * sizeof(float) : 0),
        constrained_(plan.constrained_ranges()),
        data_(plan.graph, num_examples) {
    std::ranges::fill(peer_gradients_.as<std::byte>(), std::byte{0});
    common_.arenas.local = &local_.arenas;
    common_.arenas.all_to_alls = all_to_alls_.buffers();
    executable_ = backend.compile(plan.graph, plan.compute, common_.arenas, num_examples);
    fill_weights();
    gradient_sources_ = {common_.arenas.gradients.data(), peer_gradients_.as<float>().data()};
    local_gradients_ = {local_.arenas.gradients.data()};
  }

  [[nodiscard]] std::string implementation(std::size_t operation) { return executable_->implementation(operation); }

  void run(const PlanStep& step) {
    std::visit(Overloaded{[&](const Compute& compute) { executable_->run(compute.operation, data_.context); },
                          [&](const Update& update) { this->update(plan_.buckets[update.bucket]); },
                          [&](const UpdateLocal& update) {
                            const Range& range = plan_.local_ranges[update.range];
                            executable_->update({range.begin, range.end, local_gradients_, true}, optimizer_, 1);
                          },
                          [](const auto&) {}},  // communication
               step);
  }

 private:
  /// What the busiest rank of a host updates of a bucket. Gradients of other ranks come from memory, as in training.
  void update(const Range& bucket) {
    const bool is_constrained =  // one rank updates all of it
        std::ranges::any_of(constrained_, [&](const Range& range) { return range.overlaps(bucket); });
    const std::size_t shard = (bucket.end - bucket.begin) / (is_constrained ? 1 : ranks_per_host_);
    executable_->update({bucket.begin, bucket.begin + shard, std::span(gradient_sources_).first(sources_)}, optimizer_,
                        1);
  }

  /// Fills the weights with random values as small as initializers produce.
  void fill_weights() {
    RandomStream random(0, RandomPurpose::calibration, 1);
    for (const ParameterSpec& parameter : plan_.graph.parameters) {
      if (parameter.info.shape.rank() < 2) continue;
      const Arenas& arenas = common_.arenas.of(parameter);
      const float width = 2 / std::sqrt(static_cast<float>(std::max<std::size_t>(parameter.storage, 400)));
      std::generate_n(arenas.weights.data() + parameter.offset, parameter.storage,
                      [&] { return width * (random.uniform() - 0.5F); });
    }
    executable_->update_low_precision_copies();
  }

  const Plan& plan_;
  const Optimizer& optimizer_;
  std::size_t ranks_per_host_;
  std::size_t sources_;
  TrialArenas common_;
  TrialArenas local_;
  AllToAllMemory all_to_alls_;
  AlignedBuffer peer_gradients_;
  std::vector<Range> constrained_;
  TrialData data_;
  std::unique_ptr<Executable> executable_;
  std::array<const float*, 2> gradient_sources_{};
  std::array<const float*, 1> local_gradients_{};
};

}  // namespace

namespace {

/// The median processor time of each step of the plan, in seconds.
std::vector<double> measure(Trial& trial, const Plan& plan) {
  for (const PlanStep& step : plan.training) trial.run(step);  // warm-up: creates the kernels
  std::vector<std::vector<double>> times(plan.training.size());
  const double begin = monotonic_seconds();
  const auto elapsed = [begin] { return monotonic_seconds() - begin; };
  for (int round = 0; round == 0 || elapsed() < (round < min_rounds ? max_seconds : min_seconds); ++round) {
    for (std::size_t i = 0; i < plan.training.size(); ++i) {
      const double before = thread_cpu_seconds();
      trial.run(plan.training[i]);
      times[i].push_back(thread_cpu_seconds() - before);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& each : times) {
    const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
    std::nth_element(each.begin(), middle, each.end());
    medians.push_back(*middle);
  }
  return medians;
}

}  // namespace

std::vector<double> measure_kernels(const Backend& backend, const Plan& plan, const Optimizer& optimizer,
                                    std::size_t num_examples, int ranks_on_host, int ranks) {
  Trial trial(backend, plan, optimizer, num_examples, ranks_on_host, ranks);
  return measure(trial, plan);
}

std::vector<MeasuredOperation> measure_operations(const Backend& backend, const Plan& plan, const Optimizer& optimizer,
                                                  std::size_t num_examples, int ranks) {
  Trial trial(backend, plan, optimizer, num_examples, 1, ranks);
  const std::vector<double> seconds = measure(trial, plan);
  std::vector<MeasuredOperation> operations;
  for (std::size_t place = 0; place < plan.training.size(); ++place) {
    const auto* compute = std::get_if<Compute>(&plan.training[place]);
    if (compute == nullptr) continue;
    const Operation& operation = plan.compute[compute->operation];
    const auto is_same = [&](const MeasuredOperation& known) {
      return known.operation.kind == operation.kind && known.operation.layer == operation.layer;
    };
    auto found = std::ranges::find_if(operations, is_same);
    if (found == operations.end()) {
      found = operations.insert(found, {operation, trial.implementation(compute->operation)});
    }
    ++found->calls;
    found->seconds += seconds[place];
  }
  return operations;
}

}  // namespace lockstep
