// See cost.hpp.
#include "plan/cost.hpp"

#include "core/aligned_buffer.hpp"
#include "core/clock.hpp"
#include "plan/exchange_memory.hpp"

#include <lockstep/nn/losses.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <variant>

namespace lockstep {

namespace {

/// What one thing may be measured for: a few times, but not for long.
constexpr double patience = 0.1;  // seconds
constexpr int most_times = 5;

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

}  // namespace

LinkTimes::LinkTimes(double latency, double bytes_per_second, int ranks) {
  const double parts = 2.0 * (ranks - 1) / ranks;
  const double rounds = 2 * std::ceil(std::log2(ranks));
  for (const std::size_t size : timed_sizes) {
    const auto bytes = static_cast<double>(size);
    points_.emplace_back(bytes, rounds * latency + parts * bytes / bytes_per_second);
  }
}

double LinkTimes::seconds(double bytes) const {
  // Between two points, and beyond the last as between the last two.
  std::size_t upper = 1;
  while (upper + 1 < points_.size() && points_[upper].first < bytes) ++upper;
  const auto& [low_bytes, low_seconds] = points_[upper - 1];
  const auto& [high_bytes, high_seconds] = points_[upper];
  const double slope = std::max(0.0, high_seconds - low_seconds) / (high_bytes - low_bytes);
  return low_seconds + slope * std::max(0.0, bytes - low_bytes);
}

Speeds LinkTimes::speeds(int ranks) const {
  Speeds speeds;
  const auto& [few, soon] = points_.front();
  const auto& [many, late] = points_.back();
  speeds.latency = soon / 2;
  speeds.bytes_per_second = 2.0 * (ranks - 1) / ranks * (many - few) / std::max(late - soon, 1e-9);
  return speeds;
}

LinkTimes measure_link(Communicator& communicator) {
  std::vector<BucketRange> buckets;
  std::size_t elements = 0;
  for (const std::size_t size : timed_sizes) {
    buckets.push_back({elements, elements + size / sizeof(float)});
    elements = buckets.back().end;
  }
  const ArenaMemory memory = communicator.allocate(elements, elements * sizeof(float), buckets);
  const std::span<float> sums(reinterpret_cast<float*>(memory.mirrored.data()), elements);
  const auto sum_up = [&](std::size_t bucket) {
    communicator.contribute(bucket);
    const ReducedShare share = communicator.reduce(bucket);
    for (std::size_t i = share.begin; i < share.end; ++i) {
      sums[i] = 0;
      for (const float* source : share.sources) sums[i] += source[i];
    }
    communicator.publish(bucket);
    communicator.await(bucket);
  };
  std::vector<std::pair<double, double>> points;
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    sum_up(bucket);  // connections are made
    // All ranks must count alike, so nobody looks at a clock to decide when to stop.
    constexpr int times = 4;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < times; ++i) {
      communicator.barrier();
      const double begin = monotonic_seconds();
      sum_up(bucket);
      least = std::min(least, monotonic_seconds() - begin);
    }
    points.emplace_back(static_cast<double>(timed_sizes[bucket]), least);
  }
  return LinkTimes(std::move(points));
}

std::vector<double> measure_compute(const Backend& backend, const Plan& plan, const Optimizer& optimizer,
                                    std::size_t rows, int neighbours) {
  const auto slots = static_cast<std::size_t>(slots_of(optimizer));
  TrialArenas common(plan.elements, slots, plan.graph.mixed_bfloat16);
  TrialArenas own(plan.own_elements, slots, plan.graph.mixed_bfloat16);
  common.arenas.own = &own.arenas;
  const ExchangeMemory exchanges(plan.graph);
  common.arenas.exchanges = exchanges.buffers();
  const auto executable = backend.compile(plan.graph, plan.compute, common.arenas, rows);

  const auto examples = static_cast<std::size_t>(rows);
  const auto values = examples * static_cast<std::size_t>(plan.graph.tensors.front().elements());
  const std::vector<float> inputs(values, 0.5F);
  const std::int64_t outputs = plan.graph.tensors[plan.graph.forward.back().input].elements();
  const std::vector<float> dense(examples * static_cast<std::size_t>(outputs), 0.0F);
  const std::vector<std::int32_t> classes(examples, 0);
  std::vector<std::uint32_t> order(examples);
  std::iota(order.begin(), order.end(), 0U);
  const std::vector<ReplicaRows> replicas{{0, examples}};
  StepContext context;
  context.data.inputs = inputs.data();
  if (std::holds_alternative<SparseCategoricalCrossentropy>(plan.graph.loss)) {
    context.data.targets = classes.data();
  } else {
    context.data.targets = dense.data();
  }
  context.data.examples = examples;
  context.examples = order;
  context.replicas = replicas;
  context.gradient_scale = 1.0 / static_cast<double>(examples);
  context.training = true;

  const float* const common_gradients = common.arenas.gradients.data();
  const float* const own_gradients = own.arenas.gradients.data();
  const auto run = [&](const Operation& operation) {
    const auto place = static_cast<std::size_t>(operation.bucket);
    if (operation.kind == OperationKind::update) {
      const BucketRange& bucket = plan.buckets[place];
      const std::size_t share = (bucket.end - bucket.begin) / static_cast<std::size_t>(neighbours);
      executable->update({bucket.begin, bucket.begin + share, {&common_gradients, 1}}, optimizer, 1);
    } else if (operation.kind == OperationKind::update_own) {
      const BucketRange& range = plan.own_ranges[place];
      executable->update({range.begin, range.end, {&own_gradients, 1}, true}, optimizer, 1);
    } else if (operation.id >= 0) {
      executable->run(operation, context);
    }
  };
  for (const Operation& operation : plan.training) run(operation);  // kernels are made
  // Of several runs the shortest counts: what disturbs only ever adds.
  std::vector<double> least(plan.training.size(), std::numeric_limits<double>::infinity());
  const double begin = monotonic_seconds();
  for (int times = 0; times < most_times && (times == 0 || monotonic_seconds() - begin < patience); ++times) {
    double before = monotonic_seconds();
    for (std::size_t i = 0; i < plan.training.size(); ++i) {
      run(plan.training[i]);
      const double now = monotonic_seconds();
      least[i] = std::min(least[i], now - before);
      before = now;
    }
  }
  return least;
}

std::size_t summed_bytes(const Plan& plan) {
  std::size_t bytes = 0;
  for (const BucketRange& bucket : plan.buckets) bytes += (bucket.end - bucket.begin) * sizeof(float);
  return bytes;
}

std::size_t sent_bytes(const ExchangeSpec& exchange, int rank) {
  const std::size_t all = std::accumulate(exchange.given.begin(), exchange.given.end(), std::size_t{0});
  return (all - exchange.given[static_cast<std::size_t>(rank)]) * sizeof(float);
}

double replay(const Plan& plan, const std::vector<double>& seconds, const LinkTimes& link) {
  double now = 0;
  double link_free = 0;
  std::vector<double> arrivals(plan.buckets.size(), 0);
  std::vector<double> hand_overs(plan.graph.exchanges.size(), 0);
  std::deque<std::size_t> due;  // updates that were come to before their sums had arrived
  const double latency = link.seconds(0);
  const auto bucket_of = [&](std::size_t i) { return static_cast<std::size_t>(plan.training[i].bucket); };
  const auto update_next = [&] {
    now = std::max(now, arrivals[bucket_of(due.front())]) + seconds[due.front()];
    due.pop_front();
  };
  for (std::size_t i = 0; i < plan.training.size(); ++i) {
    switch (plan.training[i].kind) {
      case OperationKind::contribute: {
        const BucketRange& bucket = plan.buckets[bucket_of(i)];
        const double taken = link.seconds(static_cast<double>((bucket.end - bucket.begin) * sizeof(float)));
        const double begin = std::max(now, link_free);
        arrivals[bucket_of(i)] = begin + taken;
        link_free = begin + std::max(0.0, taken - latency);
        break;
      }
      case OperationKind::give: {
        // A sum of so many bytes sends and receives 2 (n - 1) / n of them.
        const auto exchange = static_cast<std::size_t>(plan.training[i].exchange);
        const auto sent = static_cast<double>(sent_bytes(plan.graph.exchanges[exchange], plan.graph.rank));
        const double taken = link.seconds(sent * plan.graph.ranks / (2.0 * (plan.graph.ranks - 1)));
        const double begin = std::max(now, link_free);
        hand_overs[exchange] = begin + taken;
        link_free = begin + std::max(0.0, taken - latency);
        break;
      }
      case OperationKind::take: {
        now = std::max(now, hand_overs[static_cast<std::size_t>(plan.training[i].exchange)]);
        break;
      }
      case OperationKind::update: due.push_back(i); break;
      case OperationKind::await: {
        const auto awaited = [&](std::size_t update) { return bucket_of(update) == bucket_of(i); };
        while (std::any_of(due.begin(), due.end(), awaited)) update_next();
        break;
      }
      default: now += seconds[i];
    }
    while (!due.empty() && arrivals[bucket_of(due.front())] <= now) update_next();
  }
  while (!due.empty()) update_next();
  return now;
}

std::vector<FeatureDivision> divisions_to_try(const Graph& whole, int ranks, std::size_t batch, const Speeds& speeds) {
  std::vector<FeatureDivision> divisions;
  for (const double factor : {1.0, 10.0, 0.1, 1e4}) {
    Speeds other = speeds;
    other.latency /= factor;
    other.bytes_per_second *= factor;
    const auto division = divide_by_features(whole, ranks, batch, other);
    if (!division) break;
    if (std::find(divisions.begin(), divisions.end(), *division) == divisions.end()) divisions.push_back(*division);
  }
  return divisions;
}

}  // namespace lockstep
