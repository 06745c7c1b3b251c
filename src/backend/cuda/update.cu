// See update.hpp.
#include "backend/cuda/update.hpp"

#include "backend/cuda/launch.cuh"
#include "backend/cuda/update_runs.hpp"
#include "backend/cuda/updates.hpp"

namespace lockstep::cuda {

namespace {

struct PublishMetric {
  const float* metrics;
  float* slots;
  const StepArguments* arguments;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    slots[arguments->metrics_slot * static_cast<Index>(metric_places) + i] = metrics[i];
  }
};

}  // namespace

void update_share(cudaStream_t stream, const Graph& graph, const Arenas& arenas, std::size_t begin, std::size_t end,
                  const Optimizer& optimizer, const GradientNorms& norms, const StepArguments* arguments) {
  const Clipping clipping = clipping_of(optimizer);
  const float bound = clipping.kind == ClippingKind::clipvalue ? static_cast<float>(clipping.bound) : 0.0F;
  const UpdateKind kind = kind_of(optimizer);
  const auto* rms = std::get_if<RMSprop>(&optimizer);
  const bool second = kind == UpdateKind::adam || (rms != nullptr && rms->momentum > 0);
  const bool average = rms != nullptr && rms->centered;
  for (const UpdateRun& run : runs_of(graph, begin, end, clipping.kind == ClippingKind::clipnorm)) {
    const std::size_t count = run.end - run.begin;
    const float* gradients = arenas.gradients.data() + run.begin;
    float* weights = arenas.weights.data() + run.begin;
    if (run.rule != UpdateRule::optimizer) {
      const float momentum = run.rule == UpdateRule::moving_average ? run.momentum : 0.0F;
      for_each(stream, count, AverageElement{gradients, weights, momentum});
      continue;
    }
    const auto slot = [&](bool there, std::size_t number) {
      return there ? arenas.slots.data() + number * arenas.elements + run.begin : nullptr;
    };
    for_each(stream, count,
             UpdateElement{arguments, kind, gradients, weights, slot(kind != UpdateKind::sgd, 0), slot(second, 1),
                           slot(average, second ? 2 : 1),
                           arenas.low_precision.empty() ? nullptr : arenas.low_precision.data() + run.begin,
                           clipping.needs_norms() ? norms.scale_of(run.parameter) : nullptr, bound});
  }
}

void round_weights(cudaStream_t stream, const Arenas& arenas) {
  for_each(stream, arenas.low_precision.size(), RoundElement{arenas.weights.data(), arenas.low_precision.data()});
}

void publish_metrics(cudaStream_t stream, const float* metrics, float* slots, const StepArguments* arguments) {
  for_each(stream, metric_places, PublishMetric{metrics, slots, arguments});
}

}  // namespace lockstep::cuda
