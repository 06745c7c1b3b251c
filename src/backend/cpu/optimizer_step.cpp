// See optimizer_step.hpp. Updates a shard in tiles that fit in the first-level cache: sums the sources into a tile,
// clips it, and applies the optimizer.
#include "backend/cpu/optimizer_step.hpp"

#include "backend/cpu/regularization.hpp"
#include "core/bfloat16.hpp"
#include "core/vector_width.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

namespace lockstep {

namespace {

constexpr std::size_t tile = 1024;

/// Sums at least two sources.
void sum_sources(std::span<const float* const> sources, std::size_t begin, std::size_t count, float* sum) {
  run_vectorized([=] {
    const float* first = sources[0] + begin;
    const float* second = sources[1] + begin;
    for (std::size_t i = 0; i < count; ++i) sum[i] = first[i] + second[i];
    for (std::size_t s = 2; s < sources.size(); ++s) {
      const float* source = sources[s] + begin;
      for (std::size_t i = 0; i < count; ++i) sum[i] += source[i];
    }
  });
}

/// The summed gradient of elements [begin, begin + count): in the source if there is only one, else in `sum`.
const float* summed(std::span<const float* const> sources, std::size_t begin, std::size_t count, float* sum) {
  if (sources.size() == 1) return sources[0] + begin;
  sum_sources(sources, begin, count, sum);
  return sum;
}

/// The gradient of the loss by elements [begin, begin + count) of a parameter, penalties included: in the source if
/// that is all, else in `buffer`.
const float* loss_gradient(const ParameterSpec& parameter, const Arenas& arenas, const ReducedShard& shard,
                           std::size_t begin, std::size_t count, float* buffer) {
  const float* gradient = summed(shard.sources, begin, count, buffer);
  if (!is_regularized(parameter)) return gradient;
  add_penalty_gradient(parameter.info.regularizer, arenas.weights.data() + begin, gradient, count, buffer);
  return buffer;
}

/// The sum of squares in double precision, in which the square of a float is exact and the sums do not overflow.
double squares_of(const float* g, std::size_t count) {
  double sum = 0;
  run_vectorized([g, count, &sum] {
    constexpr std::size_t lanes = 16;
    std::array<double, lanes> sums{};
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        sums[lane] += static_cast<double>(g[i + lane]) * static_cast<double>(g[i + lane]);
      }
    }
    for (; i < count; ++i) sums[0] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  });
  return sum;
}

void multiply(const float* g, std::size_t count, float scale, float* scaled) {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) scaled[i] = scale * g[i];
  });
}

void clamp(const float* g, std::size_t count, float bound, float* clamped) {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) clamped[i] = std::clamp(g[i], -bound, bound);
  });
}

/// One step of each element by an update rule. Compiled for each rule and each vector width.
template <typename Rule, typename... SlotPointers>
void step_elements(const Rule& rule, float* w, const float* g, std::size_t count, SlotPointers... slots) {
  run_vectorized([&] {
    const Rule local = rule;  // the compiler knows that no store to a weight changes it
    for (std::size_t i = 0; i < count; ++i) local(w[i], g[i], slots[i]...);
  });
}

void round_to_bfloat16(const float* from, std::uint16_t* to, std::size_t count) {
  run_vectorized([=] {
    for (std::size_t i = 0; i < count; ++i) to[i] = BFloat16(from[i]).bits;
  });
}

/// One step of elements [begin, begin + count) by their gradients. `first_slot`: the rule's first.
template <typename Rule>
void step_tile(const Rule& rule, const Arenas& arenas, std::size_t first_slot, std::size_t begin, std::size_t count,
               const float* gradient) {
  float* w = arenas.weights.data() + begin;
  [&]<std::size_t... slot>(std::index_sequence<slot...>) {
    step_elements(rule, w, gradient, count, (arenas.slots.data() + (first_slot + slot) * arenas.elements + begin)...);
  }
  (std::make_index_sequence<Rule::num_slots>());
}

/// Whether no element changes: most rows of an Embedding are not in a batch. Stops at the first value.
template <typename Rule>
bool changes_nothing(const SharedUpdate& shared, const float* gradient, std::size_t count) {
  if constexpr (requires { Rule::ignores_zero_gradients; }) {
    if (shared.accumulates() || shared.decay != 0.0F || shared.averages) return false;
    return std::all_of(gradient, gradient + count, [](float g) { return g == 0.0F; });
  }
  return false;
}

/// The parts of SharedUpdate for elements [begin, begin + count).
class SharedStep {
 public:
  SharedStep(const SharedUpdate& shared, const Arenas& arenas, std::size_t begin, std::size_t count)
      : shared_(shared), arenas_(arenas), begin_(begin), count_(count) {}

  /// Returns the mean of the accumulated gradients and this step's, in `buffer`. Null in a step that only accumulates.
  [[nodiscard]] const float* accumulate(const float* gradient, float* buffer) const {
    float* const accumulated = slot(shared_.accumulator_slot());
    run_vectorized([=, shared = shared_, count = count_] {
      for (std::size_t i = 0; i < count; ++i) {
        const float g = gradient[i];  // may lie in the buffer
        buffer[i] = shared.mean_gradient(g, accumulated[i]);
        accumulated[i] = shared.changes_weights ? 0.0F : accumulated[i] + g;
      }
    });
    return shared_.changes_weights ? buffer : nullptr;
  }

  void decay() const {
    if (shared_.decay == 0.0F) return;
    float* const w = arenas_.weights.data() + begin_;
    run_vectorized([=, decay = shared_.decay, count = count_] {
      for (std::size_t i = 0; i < count; ++i) w[i] -= w[i] * decay;
    });
  }

  void average() const {
    if (!shared_.averages) return;
    float* const w = arenas_.weights.data() + begin_;
    float* const moving = slot(0);
    run_vectorized([=, shared = shared_, count = count_] {
      for (std::size_t i = 0; i < count; ++i) shared.average(w[i], moving[i]);
    });
  }

 private:
  [[nodiscard]] float* slot(int index) const {
    return arenas_.slots.data() + static_cast<std::size_t>(index) * arenas_.elements + begin_;
  }

  const SharedUpdate& shared_;
  const Arenas& arenas_;
  std::size_t begin_;
  std::size_t count_;
};

/// The intersection of a shard with a parameter.
struct ParameterRange {
  ParameterRange(const ParameterSpec& parameter, const ReducedShard& shard)
      : begin(std::max(shard.begin, parameter.offset)),
        end(parameter.is_local == shard.is_local ? std::min(shard.end, parameter.offset + parameter.storage) : 0) {}

  [[nodiscard]] std::size_t tiles() const noexcept { return begin < end ? (end - begin + tile - 1) / tile : 0; }
  [[nodiscard]] std::size_t tile_begin(std::size_t number) const noexcept { return begin + number * tile; }
  [[nodiscard]] std::size_t tile_size(std::size_t number) const noexcept {
    return std::min(tile, end - tile_begin(number));
  }

  std::size_t begin;
  std::size_t end;
};

template <typename Rule>
void apply_rule(const Rule& rule, const SharedUpdate& shared, const Graph& graph, const Arenas& arenas,
                const ReducedShard& shard, const Clipping& clipping, int threads) {
  const float bound = clipping.kind == ClippingKind::clipvalue ? static_cast<float>(clipping.bound) : 0.0F;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const ParameterSpec& parameter = graph.parameters[p];
    const ParameterRange range(parameter, shard);
    const std::size_t tiles = range.tiles();
    if (tiles == 0) continue;  // even an empty parallel region costs time
    const float scale = shard.clip_scales.empty() ? 1.0F : shard.clip_scales[p];
#pragma omp parallel for num_threads(threads) if (threads > 1 && tiles > 4)
    for (std::size_t t = 0; t < tiles; ++t) {
      alignas(64) std::array<float, tile> buffer;  // NOLINT(*-member-init): written before it is read
      const std::size_t at = range.tile_begin(t);
      const std::size_t count = range.tile_size(t);
      const float* gradient = loss_gradient(parameter, arenas, shard, at, count, buffer.data());
      float* w = arenas.weights.data() + at;
      switch (parameter.rule) {
        case UpdateRule::optimizer: {
          if (changes_nothing<Rule>(shared, gradient, count)) break;
          const SharedStep around(shared, arenas, at, count);
          if (shared.accumulates()) gradient = around.accumulate(gradient, buffer.data());
          if (gradient != nullptr) {
            if (scale != 1.0F) {
              multiply(gradient, count, scale, buffer.data());
              gradient = buffer.data();
            } else if (bound > 0.0F) {
              clamp(gradient, count, bound, buffer.data());
              gradient = buffer.data();
            }
            around.decay();
            step_tile(rule, arenas, static_cast<std::size_t>(shared.num_slots()), at, count, gradient);
          }
          around.average();
          if (!arenas.low_precision.empty()) round_to_bfloat16(w, arenas.low_precision.data() + at, count);
          break;
        }
        case UpdateRule::frozen: break;  // is in no shard
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

}  // namespace

void apply_optimizer(const Graph& graph, const Arenas& arenas, const ReducedShard& shard, const Optimizer& optimizer,
                     std::uint64_t iteration, int threads) {
  const SharedUpdate shared = shared_update(optimizer, iteration);
  with_update_rule(optimizer, iteration, [&](const auto& rule) {
    apply_rule(rule, shared, graph, arenas, shard, clipping_of(optimizer), threads);
  });
}

void sum_squared_gradients(const Graph& graph, const Arenas& arenas, const ReducedShard& shard,
                           const Optimizer& optimizer, std::uint64_t iteration, std::span<double> sums, int threads) {
  const SharedUpdate shared = shared_update(optimizer, iteration);
  if (!shared.changes_weights) return;
  // Adds the sums of tiles in order, so that the number of threads does not change the bits.
  constexpr std::size_t max_tiles = 256;
  std::array<double, max_tiles> squares;  // NOLINT(*-member-init): written before it is read
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    if (graph.parameters[p].rule != UpdateRule::optimizer) continue;
    const ParameterRange range(graph.parameters[p], shard);
    for (std::size_t first = 0; first < range.tiles(); first += max_tiles) {
      const std::size_t tiles = std::min(max_tiles, range.tiles() - first);
#pragma omp parallel for num_threads(threads) if (threads > 1 && tiles > 4)
      for (std::size_t t = 0; t < tiles; ++t) {
        alignas(64) std::array<float, tile> buffer;  // NOLINT(*-member-init): written before it is read
        const std::size_t count = range.tile_size(first + t);
        const std::size_t at = range.tile_begin(first + t);
        const float* gradient = loss_gradient(graph.parameters[p], arenas, shard, at, count, buffer.data());
        if (shared.accumulates()) {
          const float* const accumulated =
              arenas.slots.data() + static_cast<std::size_t>(shared.accumulator_slot()) * arenas.elements + at;
          for (std::size_t i = 0; i < count; ++i) buffer[i] = shared.mean_gradient(gradient[i], accumulated[i]);
          gradient = buffer.data();
        }
        squares[t] = squares_of(gradient, count);
      }
      sums[p] = std::accumulate(squares.begin(), squares.begin() + static_cast<std::ptrdiff_t>(tiles), sums[p]);
    }
  }
}

}  // namespace lockstep
