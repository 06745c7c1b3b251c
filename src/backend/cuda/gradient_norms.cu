// See gradient_norms.hpp.
#include "backend/cuda/gradient_norms.hpp"

#include "backend/cuda/channel_sums.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/squares.hpp"
#include "backend/cuda/update_runs.hpp"

namespace lockstep::cuda {

GradientNorms::GradientNorms(const Graph& graph)
    : parameters_(graph.parameters.size()),
      partials_(partial_bytes(square_lanes)),
      lanes_(parameters_ * square_lanes * sizeof(double)),
      squares_(parameters_ * sizeof(double)),
      scales_(parameters_ * sizeof(float)) {}

void GradientNorms::add_squares(cudaStream_t stream, const Graph& graph, const float* gradients, std::size_t begin,
                                std::size_t end) const {
  for (const UpdateRun& run : runs_of(graph, begin, end, true)) {
    if (run.rule != UpdateRule::optimizer) continue;
    const std::size_t count = run.end - run.begin;
    const std::size_t rows = (count + square_lanes - 1) / square_lanes;
    const PartialSums sums =
        sum_channels(stream, rows, square_lanes, SquareTerms{gradients + run.begin, count}, partials_.data());
    for_each(stream, square_lanes, AddLane{sums, lanes_.as<double>() + run.parameter * square_lanes});
  }
}

void GradientNorms::find_scales(cudaStream_t stream, const Clipping& clipping) const {
  for_each(stream, parameters_, TakeLanes{lanes_.as<double>(), squares_.as<double>()});
  for_each(stream, parameters_,
           FindScale{squares_.as<double>(), scales_.as<float>(), static_cast<Index>(parameters_), clipping.bound,
                     clipping.kind == ClippingKind::global_clipnorm});
}

}  // namespace lockstep::cuda
