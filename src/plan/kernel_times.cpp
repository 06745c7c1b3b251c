// See kernel_times.hpp. Images and weights are random: on constant ones branches are easier to predict than in
// training, and gathering is faster.
#include "plan/kernel_times.hpp"

#include "core/aligned_buffer.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "plan/exchange_memory.hpp"

#include <lockstep/nn/losses.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

namespace lockstep {

namespace {

/// What one plan may be measured for: a few times, and for a while if steps are short, but not for long.
constexpr double patience = 0.1;  // seconds
constexpr double a_while = 0.03;
constexpr int enough_rounds = 5;

/// The images that examples are gathered from, in batches: more than a cache keeps.
constexpr std::size_t pool_batches = 8;

/// Memory for the arenas of a plan that is only tried.
class TrialArenas {
 public:
  TrialArenas(std::size_t elements, std::size_t slots, bool low_precision)
      : gradients_(elements * sizeof(float)),
        weights_(elements * sizeof(float)),
        slots_(elements * slots * sizeof(float)),
        low_precision_(low_precision ? elements * sizeof(std::uint16_t) : 0) {
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

/// Examples like those of MNIST: a stretch of grey on black, of any class.
class TrialData {
 public:
  TrialData(const Graph& graph, std::size_t rows) {
    RandomStream random(0, RandomPurpose::trial, 0);
    const std::size_t pool = pool_batches * std::max<std::size_t>(rows, 1);
    const auto pixels = static_cast<std::size_t>(graph.tensors.front().elements());
    const auto outputs = static_cast<std::size_t>(graph.tensors[graph.forward.back().input].elements());
    images_.resize(pool * pixels);
    for (std::size_t image = 0; image < pool; ++image) {
      const std::size_t drawn = pixels / 4;
      const auto begin = static_cast<std::size_t>(random.uniform() * static_cast<float>(pixels - drawn));
      std::uint8_t* const first = images_.data() + image * pixels + begin;
      std::generate_n(first, drawn, [&] { return static_cast<std::uint8_t>(random.next()); });
    }
    context.data.inputs = images_.data();
    context.data.examples = pool;
    if (std::holds_alternative<SparseCategoricalCrossentropy>(graph.loss)) {
      classes_.resize(pool);
      for (std::int32_t& each : classes_) {
        each = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(outputs)));
      }
      context.data.targets = classes_.data();
    } else {
      targets_.assign(pool * outputs, 0.0F);
      context.data.targets = targets_.data();
    }
    order_.resize(rows);
    for (std::uint32_t& each : order_) each = random.below(static_cast<std::uint32_t>(pool));
    replicas_ = {{0, rows}};
    context.examples = order_;
    context.replicas = replicas_;
    context.gradient_scale = 1.0 / static_cast<double>(std::max<std::size_t>(rows, 1));
    context.training = true;
  }

  StepContext context;

 private:
  std::vector<std::uint8_t> images_;
  std::vector<std::int32_t> classes_;
  std::vector<float> targets_;
  std::vector<std::uint32_t> order_;
  std::vector<ReplicaRows> replicas_;
};

/// A plan that can be run without anybody to sum with.
class Trial {
 public:
  Trial(const Backend& backend, const Plan& plan, const Optimizer& optimizer, std::size_t rows, int neighbours,
        int ranks)
      : plan_(plan),
        optimizer_(optimizer),
        sharers_(static_cast<std::size_t>(neighbours)),
        sources_(ranks > 1 ? 2 : 1),
        common_(plan.elements, static_cast<std::size_t>(slots_of(optimizer)), plan.graph.mixed_bfloat16),
        own_(plan.own_elements, static_cast<std::size_t>(slots_of(optimizer)), plan.graph.mixed_bfloat16),
        exchanges_(plan.graph),
        others_(plan.elements * sizeof(float)),
        data_(plan.graph, rows) {
    std::ranges::fill(others_.as<std::byte>(), std::byte{0});
    common_.arenas.own = &own_.arenas;
    common_.arenas.exchanges = exchanges_.buffers();
    executable_ = backend.compile(plan.graph, plan.compute, common_.arenas, rows);
    fill_weights();
    both_ = {common_.arenas.gradients.data(), others_.as<float>().data()};
    its_own_ = {own_.arenas.gradients.data()};
  }

  void run(const Operation& operation) {
    const auto place = static_cast<std::size_t>(operation.bucket);
    if (operation.kind == OperationKind::update) {
      // What the others have computed comes from memory, as it will.
      const BucketRange& bucket = plan_.buckets[place];
      const std::size_t share = (bucket.end - bucket.begin) / sharers_;
      executable_->update({bucket.begin, bucket.begin + share, std::span(both_).first(sources_)}, optimizer_, 1);
    } else if (operation.kind == OperationKind::update_own) {
      const BucketRange& range = plan_.own_ranges[place];
      executable_->update({range.begin, range.end, its_own_, true}, optimizer_, 1);
    } else if (operation.id >= 0) {
      executable_->run(operation, data_.context);
    }
  }

 private:
  /// As small as initializers make them.
  void fill_weights() {
    RandomStream random(0, RandomPurpose::trial, 1);
    for (const ParameterSpec& parameter : plan_.graph.parameters) {
      if (parameter.info.shape.rank() < 2) continue;
      const Arenas& arenas = common_.arenas.of(parameter);
      const float width = 2 / std::sqrt(static_cast<float>(std::max<std::size_t>(parameter.storage, 400)));
      std::generate_n(arenas.weights.data() + parameter.offset, parameter.storage,
                      [&] { return width * (random.uniform() - 0.5F); });
    }
    executable_->refresh();
  }

  const Plan& plan_;
  const Optimizer& optimizer_;
  std::size_t sharers_;
  std::size_t sources_;
  TrialArenas common_;
  TrialArenas own_;
  ExchangeMemory exchanges_;
  AlignedBuffer others_;
  TrialData data_;
  std::unique_ptr<Executable> executable_;
  std::array<const float*, 2> both_{};
  std::array<const float*, 1> its_own_{};
};

}  // namespace

std::vector<double> measure_kernels(const Backend& backend, const Plan& plan, const Optimizer& optimizer,
                                    std::size_t rows, int neighbours, int ranks) {
  Trial trial(backend, plan, optimizer, rows, neighbours, ranks);
  for (const Operation& operation : plan.training) trial.run(operation);  // kernels are made
  std::vector<std::vector<double>> times(plan.training.size());
  const double begin = monotonic_seconds();
  const auto elapsed = [begin] { return monotonic_seconds() - begin; };
  for (int round = 0; round == 0 || elapsed() < (round < enough_rounds ? patience : a_while); ++round) {
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

}  // namespace lockstep
