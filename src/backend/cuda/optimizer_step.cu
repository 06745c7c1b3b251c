// See optimizer_step.hpp.
#include "backend/cuda/optimizer_step.hpp"

#include "backend/cuda/launch.cuh"
#include "backend/cuda/update_ranges.hpp"
#include "backend/cuda/optimizer_functors.hpp"

namespace lockstep::cuda {

namespace {

struct PublishMetric {
  const float* metrics;
  Index count;
  float* slots;
  const StepArguments* arguments;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    slots[arguments->metrics_slot * count + i] = metrics[i];
  }
};

}  // namespace

void apply_optimizer(cudaStream_t stream, const Graph& graph, const Arenas& arenas, std::size_t begin, std::size_t end,
                     const Optimizer& optimizer, const GradientNorm& gradient_norm, const StepArguments* arguments) {
  const Clipping clipping = clipping_of(optimizer);
  const float bound = clipping.kind == ClippingKind::clipvalue ? static_cast<float>(clipping.bound) : 0.0F;
  for (const UpdateRange& range : update_ranges(graph, begin, end, clipping.kind == ClippingKind::clipnorm)) {
    const std::size_t count = range.end - range.begin;
    const float* gradients = arenas.gradients.data() + range.begin;
    float* weights = arenas.weights.data() + range.begin;
    if (range.rule != UpdateRule::optimizer) {
      const float momentum = range.rule == UpdateRule::moving_average ? range.momentum : 0.0F;
      for_each(stream, count, MovingAverageElement{gradients, weights, momentum});
      continue;
    }
    // Only the rule's type is used here. Its values come with each step's arguments.
    with_update_rule(optimizer, 1, [&]<typename Rule>(const Rule& /*first*/) {
      for_each(stream, count,
               UpdateElement<Rule>{arguments, gradients, weights,
                                   arenas.slots.empty() ? nullptr : arenas.slots.data() + range.begin, arenas.elements,
                                   arenas.low_precision.empty() ? nullptr : arenas.low_precision.data() + range.begin,
                                   clipping.needs_norms() ? gradient_norm.clip_scale(range.parameter) : nullptr,
                                   bound});
    });
  }
}

void round_weights_to_bfloat16(cudaStream_t stream, const Arenas& arenas) {
  for_each(stream, arenas.low_precision.size(), RoundToBfloat16{arenas.weights.data(), arenas.low_precision.data()});
}

void publish_metrics(cudaStream_t stream, std::span<const float> metrics, float* slots,
                     const StepArguments* arguments) {
  for_each(stream, metrics.size(), PublishMetric{metrics.data(), static_cast<Index>(metrics.size()), slots, arguments});
}

}  // namespace lockstep::cuda
