// See gradient_norm.hpp.
#include "backend/cuda/gradient_norm.hpp"

#include "backend/cuda/channel_reduction.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/gradient_norm_functors.hpp"
#include "backend/cuda/update_ranges.hpp"

namespace lockstep::cuda {

GradientNorm::GradientNorm(const Graph& graph)
    : parameters_(graph.parameters.size()),
      partials_(channel_reduction_bytes(norm_lanes)),
      lanes_(parameters_ * norm_lanes * sizeof(double)),
      squared_norms_(parameters_ * sizeof(double)),
      clip_scales_(parameters_ * sizeof(float)) {}

void GradientNorm::add_squared_gradients(cudaStream_t stream, const Graph& graph, const float* gradients, std::size_t begin,
                                std::size_t end) {
  for (const UpdateRange& range : update_ranges(graph, begin, end, true)) {
    if (range.rule != UpdateRule::optimizer) continue;
    const std::size_t count = range.end - range.begin;
    const std::size_t rows = (count + norm_lanes - 1) / norm_lanes;
    reduce_channels(stream, rows, norm_lanes, SquaredGradientTerms{gradients + range.begin, count}, partials_.data(),
                    AddLane{lanes_.as<double>() + range.parameter * norm_lanes});
  }
}

void GradientNorm::make_clip_scales(cudaStream_t stream, const Clipping& clipping) {
  for_each(stream, parameters_, SumLanes{lanes_.as<double>(), squared_norms_.as<double>()});
  for_each(stream, parameters_,
           MakeClipScale{squared_norms_.as<double>(), clip_scales_.as<float>(), static_cast<Index>(parameters_), clipping.bound,
                     clipping.kind == ClippingKind::global_clipnorm});
}

}  // namespace lockstep::cuda
