// See norm_clipping.hpp.
#include "plan/norm_clipping.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {

namespace {

/// What brings a gradient of this norm down to the bound. NaN stays NaN, as in Keras.
float scale_of(double squares, double bound) {
  const double norm = std::sqrt(squares);
  return norm <= bound ? 1.0F : static_cast<float>(bound / norm);
}

}  // namespace

NormClipping::NormClipping(const Plan& plan, const Executable& executable, Communicator& communicator)
    : executable_(executable),
      communicator_(communicator),
      has_gradients_(plan.buckets.size()),
      squares_(plan.graph.parameters.size()),
      scales_(plan.graph.parameters.size(), 1.0F) {
  for (const ParameterSpec& parameter : plan.graph.parameters) {
    const bool repeated = parameter.own && !parameter.divided;
    counts_.push_back(repeated ? communicator.rank() == 0 : parameter.own || communicator.host() == 0);
    if (parameter.own || parameter.rule != UpdateRule::optimizer) continue;
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      const BucketRange& bucket = plan.buckets[b];
      if (parameter.offset < bucket.end && parameter.offset + parameter.storage > bucket.begin) {
        has_gradients_[b] = true;
      }
    }
  }
  held_.reserve(plan.buckets.size() + plan.own_ranges.size());
}

void NormClipping::hold(std::size_t operation, const UpdateShare& share) {
  held_.push_back({operation, share});
  executable_.add_squares(share, squares_);
}

void NormClipping::agree(const Clipping& clipping) {
  if (executable_.find_scales(clipping)) return;
  for (std::size_t p = 0; p < squares_.size(); ++p) {
    if (!counts_[p]) squares_[p] = 0;
  }
  if (clipping.kind == ClippingKind::global_clipnorm) {
    double all = std::accumulate(squares_.begin(), squares_.end(), 0.0);
    communicator_.all_reduce_sum({&all, 1});
    std::fill(scales_.begin(), scales_.end(), scale_of(all, clipping.bound));
  } else {
    communicator_.all_reduce_sum(squares_);
    std::transform(squares_.begin(), squares_.end(), scales_.begin(),
                   [&](double squares) { return scale_of(squares, clipping.bound); });
  }
  std::fill(squares_.begin(), squares_.end(), 0.0);
  for (Held& held : held_) held.share.scales = scales_;
}

}  // namespace lockstep
