// See norm_clipping.hpp.
#include "plan/norm_clipping.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {

namespace {

/// The factor that reduces a gradient of this norm to the bound. NaN stays NaN, as in Keras.
float clip_scale(double squared_norm, double bound) {
  const double norm = std::sqrt(squared_norm);
  return norm <= bound ? 1.0F : static_cast<float>(bound / norm);
}

}  // namespace

NormClipping::NormClipping(const Plan& plan, Executable& executable, Communicator& communicator)
    : executable_(executable),
      communicator_(communicator),
      has_gradients_(plan.buckets.size()),
      squared_norms_(plan.graph.parameters.size()),
      clip_scales_(plan.graph.parameters.size(), 1.0F) {
  for (const ParameterSpec& parameter : plan.graph.parameters) {
    const bool is_replicated = parameter.is_local && !parameter.is_sharded;
    is_counted_here_.push_back(is_replicated ? communicator.rank() == 0
                                             : parameter.is_local || communicator.host() == 0);
    if (parameter.is_local || parameter.rule != UpdateRule::optimizer) continue;
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      const Range& bucket = plan.buckets[b];
      if (parameter.offset < bucket.end && parameter.offset + parameter.storage > bucket.begin) {
        has_gradients_[b] = true;
      }
    }
  }
  deferred_updates_.reserve(plan.buckets.size() + plan.local_ranges.size());
}

void NormClipping::defer(std::size_t place, const ReducedShard& shard, const Optimizer& optimizer,
                         std::uint64_t iteration) {
  deferred_updates_.push_back({place, shard});
  executable_.add_squared_gradients(shard, optimizer, iteration, squared_norms_);
}

void NormClipping::all_reduce_norms(const Clipping& clipping) {
  if (executable_.make_clip_scales(clipping)) return;
  for (std::size_t p = 0; p < squared_norms_.size(); ++p) {
    if (!is_counted_here_[p]) squared_norms_[p] = 0;
  }
  if (clipping.kind == ClippingKind::global_clipnorm) {
    double all = std::accumulate(squared_norms_.begin(), squared_norms_.end(), 0.0);
    communicator_.all_reduce_sum({&all, 1});
    std::fill(clip_scales_.begin(), clip_scales_.end(), clip_scale(all, clipping.bound));
  } else {
    communicator_.all_reduce_sum(squared_norms_);
    std::transform(squared_norms_.begin(), squared_norms_.end(), clip_scales_.begin(),
                   [&](double squared_norm) { return clip_scale(squared_norm, clipping.bound); });
  }
  std::fill(squared_norms_.begin(), squared_norms_.end(), 0.0);
  for (DeferredUpdate& deferred : deferred_updates_) deferred.shard.clip_scales = clip_scales_;
}

}  // namespace lockstep
