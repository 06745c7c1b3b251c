// See update.hpp. A share is worked through in tiles that fit the first-level cache: sum the sources into a tile, step.
#include "backend/cpu/update.hpp"

#include "core/bfloat16.hpp"
#include "core/vectorized.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
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

/// The summed gradient of elements [begin, begin + count): where the only source has it, else in `sum`.
const float* summed(std::span<const float* const> sources, std::size_t begin, std::size_t count, float* sum) {
  if (sources.size() == 1) return sources[0] + begin;
  sum_sources(sources, begin, count, sum);
  return sum;
}

/// In double precision, where the square of a float is exact and no sum of them overflows.
LOCKSTEP_VECTORIZED double squares_of(const float* g, std::size_t count) {
  constexpr std::size_t lanes = 16;
  std::array<double, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += static_cast<double>(g[i + lane]) * static_cast<double>(g[i + lane]);
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

LOCKSTEP_VECTORIZED void multiply(const float* g, std::size_t count, float scale, float* scaled) {
  for (std::size_t i = 0; i < count; ++i) scaled[i] = scale * g[i];
}

LOCKSTEP_VECTORIZED void clamp(const float* g, std::size_t count, float bound, float* clamped) {
  for (std::size_t i = 0; i < count; ++i) clamped[i] = std::clamp(g[i], -bound, bound);
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

/// What a share has of a parameter.
struct Part {
  Part(const ParameterSpec& parameter, const UpdateShare& share)
      : begin(std::max(share.begin, parameter.offset)),
        end(parameter.own == share.own ? std::min(share.end, parameter.offset + parameter.storage) : 0) {}

  [[nodiscard]] std::size_t tiles() const noexcept { return begin < end ? (end - begin + tile - 1) / tile : 0; }
  [[nodiscard]] std::size_t tile_begin(std::size_t number) const noexcept { return begin + number * tile; }
  [[nodiscard]] std::size_t tile_size(std::size_t number) const noexcept {
    return std::min(tile, end - tile_begin(number));
  }

  std::size_t begin;
  std::size_t end;
};

}  // namespace

void update_share(const Graph& graph, const Arenas& arenas, const UpdateShare& share, const Optimizer& optimizer,
                  std::uint64_t iteration, int threads) {
  const TileUpdate tile_update(arenas, optimizer, iteration);
  const Clipping clipping = clipping_of(optimizer);
  const float bound = clipping.kind == ClippingKind::clipvalue ? static_cast<float>(clipping.bound) : 0.0F;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const ParameterSpec& parameter = graph.parameters[p];
    const Part part(parameter, share);
    const std::size_t tiles = part.tiles();
    if (tiles == 0) continue;  // a parallel region costs something even where it has nothing to do
    const float scale = share.scales.empty() ? 1.0F : share.scales[p];
#pragma omp parallel for num_threads(threads) if (threads > 1 && tiles > 4)
    for (std::size_t t = 0; t < tiles; ++t) {
      alignas(64) std::array<float, tile> own;  // NOLINT(*-member-init): written before it is read
      const std::size_t at = part.tile_begin(t);
      const std::size_t count = part.tile_size(t);
      const float* gradient = summed(share.sources, at, count, own.data());
      float* w = arenas.weights.data() + at;
      switch (parameter.rule) {
        case UpdateRule::optimizer:
          if (scale != 1.0F) {
            multiply(gradient, count, scale, own.data());
            gradient = own.data();
          } else if (bound > 0.0F) {
            clamp(gradient, count, bound, own.data());
            gradient = own.data();
          }
          tile_update.step(at, count, gradient);
          break;
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

void add_squares_of_share(const Graph& graph, const UpdateShare& share, std::span<double> sums, int threads) {
  // Squares of a few tiles at a time: any number of threads then adds them in the same order.
  constexpr std::size_t few = 256;
  std::array<double, few> squares;  // NOLINT(*-member-init): written before it is read
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    if (graph.parameters[p].rule != UpdateRule::optimizer) continue;
    const Part part(graph.parameters[p], share);
    for (std::size_t first = 0; first < part.tiles(); first += few) {
      const std::size_t tiles = std::min(few, part.tiles() - first);
#pragma omp parallel for num_threads(threads) if (threads > 1 && tiles > 4)
      for (std::size_t t = 0; t < tiles; ++t) {
        alignas(64) std::array<float, tile> own;  // NOLINT(*-member-init): written before it is read
        const std::size_t count = part.tile_size(first + t);
        squares[t] = squares_of(summed(share.sources, part.tile_begin(first + t), count, own.data()), count);
      }
      sums[p] = std::accumulate(squares.begin(), squares.begin() + static_cast<std::ptrdiff_t>(tiles), sums[p]);
    }
  }
}

}  // namespace lockstep
