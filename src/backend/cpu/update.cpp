// See update.hpp. A share is worked through in tiles that fit the first-level cache: sum the sources into a tile, step.
#include "backend/cpu/update.hpp"

#include "core/bfloat16.hpp"
#include "core/vectorized.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep {

namespace {

constexpr std::size_t tile = 1024;

/// Of two sources or more.
LOCKSTEP_VECTORIZED void sum_sources(std::span<const float* const> sources, std::size_t begin, std::size_t count,
                                     float* sum) {
  const float* first = sources[0] + begin;
  const float* second = sources[1] + begin;
  for (std::size_t i = 0; i < count; ++i) sum[i] = first[i] + second[i];
  for (std::size_t s = 2; s < sources.size(); ++s) {
    const float* source = sources[s] + begin;
    for (std::size_t i = 0; i < count; ++i) sum[i] += source[i];
  }
}

LOCKSTEP_VECTORIZED void descend(float* w, const float* g, std::size_t count, float rate) {
  for (std::size_t i = 0; i < count; ++i) w[i] -= rate * g[i];
}

LOCKSTEP_VECTORIZED void descend_with_momentum(float* w, float* v, const float* g, std::size_t count, float rate,
                                               float momentum, bool nesterov) {
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] - rate * g[i];
    w[i] += nesterov ? momentum * v[i] - rate * g[i] : v[i];
  }
}

struct AdamStep {
  float decay;  ///< learning rate times weight decay
  float alpha;  ///< learning rate, bias corrected
  float one_minus_beta_1;
  float one_minus_beta_2;
  float epsilon;
};

LOCKSTEP_VECTORIZED void adam(float* w, float* m, float* v, const float* g, std::size_t count, const AdamStep& s) {
  for (std::size_t i = 0; i < count; ++i) {
    m[i] += (g[i] - m[i]) * s.one_minus_beta_1;
    v[i] += (g[i] * g[i] - v[i]) * s.one_minus_beta_2;
    w[i] = w[i] - w[i] * s.decay - s.alpha * m[i] / (std::sqrt(v[i]) + s.epsilon);
  }
}

struct RMSpropStep {
  float rate;
  float rho;
  float momentum;
  float epsilon;
  bool centered;
};

/// `p` and `a` are null where there is no momentum, or nothing is centred.
LOCKSTEP_VECTORIZED void rmsprop(float* w, float* v, float* p, float* a, const float* g, std::size_t count,
                                 const RMSpropStep& s) {
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = s.rho * v[i] + (1.0F - s.rho) * g[i] * g[i];
    float denominator = v[i] + s.epsilon;
    if (s.centered) {
      a[i] = s.rho * a[i] + (1.0F - s.rho) * g[i];
      denominator -= a[i] * a[i];
    }
    float increment = s.rate * g[i] / std::sqrt(denominator);
    if (p != nullptr) {
      p[i] = s.momentum * p[i] + increment;
      increment = p[i];
    }
    w[i] -= increment;
  }
}

LOCKSTEP_VECTORIZED void round_to_bfloat16(const float* from, std::uint16_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = BFloat16(from[i]).bits;
}

/// One optimizer step over a tile; made once a share, so that what depends on the iteration is computed once.
class TileUpdate {
 public:
  TileUpdate(const Arenas& arenas, const Optimizer& optimizer, std::uint64_t iteration)
      : arenas_(arenas), optimizer_(optimizer) {
    const double rate = learning_rate_of(optimizer).at(iteration - 1);
    rate_ = static_cast<float>(rate);
    const auto t = static_cast<double>(iteration);
    const auto prepare = [&](double beta_1, double beta_2, double epsilon, double decay) {
      const double alpha = rate * std::sqrt(1.0 - std::pow(beta_2, t)) / (1.0 - std::pow(beta_1, t));
      adam_ = {static_cast<float>(rate * decay), static_cast<float>(alpha), static_cast<float>(1.0 - beta_1),
               static_cast<float>(1.0 - beta_2), static_cast<float>(epsilon)};
    };
    if (const auto* o = std::get_if<Adam>(&optimizer)) prepare(o->beta_1, o->beta_2, o->epsilon, 0);
    if (const auto* o = std::get_if<AdamW>(&optimizer)) prepare(o->beta_1, o->beta_2, o->epsilon, o->weight_decay);
  }

  void step(std::size_t begin, std::size_t count, const float* gradient) const {
    float* w = arenas_.weights.data() + begin;
    if (const auto* sgd = std::get_if<SGD>(&optimizer_)) {
      if (sgd->momentum == 0) {
        descend(w, gradient, count, rate_);
      } else {
        descend_with_momentum(w, slot(0, begin), gradient, count, rate_, static_cast<float>(sgd->momentum),
                              sgd->nesterov);
      }
    } else if (const auto* rms = std::get_if<RMSprop>(&optimizer_)) {
      int next = 1;
      float* p = rms->momentum > 0 ? slot(next++, begin) : nullptr;
      float* a = rms->centered ? slot(next, begin) : nullptr;
      rmsprop(w, slot(0, begin), p, a, gradient, count,
              {rate_, static_cast<float>(rms->rho), static_cast<float>(rms->momentum), static_cast<float>(rms->epsilon),
               rms->centered});
    } else {
      adam(w, slot(0, begin), slot(1, begin), gradient, count, adam_);
    }
    if (!arenas_.low_precision.empty()) round_to_bfloat16(w, arenas_.low_precision.data() + begin, count);
  }

 private:
  [[nodiscard]] float* slot(int number, std::size_t begin) const {
    return arenas_.slots.data() + static_cast<std::size_t>(number) * arenas_.elements + begin;
  }

  const Arenas& arenas_;
  const Optimizer& optimizer_;
  float rate_ = 0;
  AdamStep adam_{};
};

}  // namespace

void update_share(const Graph& graph, const Arenas& arenas, const UpdateShare& share, const Optimizer& optimizer,
                  std::uint64_t iteration, int threads) {
  const TileUpdate tile_update(arenas, optimizer, iteration);
  for (const ParameterSpec& parameter : graph.parameters) {
    if (parameter.own != share.own) continue;
    const std::size_t begin = std::max(share.begin, parameter.offset);
    const std::size_t end = std::min(share.end, parameter.offset + parameter.storage);
    if (begin >= end) continue;
    const std::size_t tiles = (end - begin + tile - 1) / tile;
#pragma omp parallel for num_threads(threads) if (threads > 1 && tiles > 4)
    for (std::size_t t = 0; t < tiles; ++t) {
      alignas(64) std::array<float, tile> sum;  // NOLINT(*-member-init): written before it is read
      const std::size_t at = begin + t * tile;
      const std::size_t count = std::min(tile, end - at);
      const float* gradient = sum.data();
      if (share.sources.size() == 1) {
        gradient = share.sources[0] + at;
      } else {
        sum_sources(share.sources, at, count, sum.data());
      }
      float* w = arenas.weights.data() + at;
      switch (parameter.rule) {
        case UpdateRule::optimizer: tile_update.step(at, count, gradient); break;
        case UpdateRule::assign: std::copy_n(gradient, count, w); break;
        case UpdateRule::moving_average:
          for (std::size_t i = 0; i < count; ++i) {
            w[i] = parameter.momentum * w[i] + (1.0F - parameter.momentum) * gradient[i];
          }
          break;
      }
    }
  }
}

}  // namespace lockstep
