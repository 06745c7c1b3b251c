// See cost.hpp.
#include "plan/cost.hpp"

#include <algorithm>
#include <deque>
#include <numeric>

namespace lockstep {

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
  const auto bucket_of = [&](std::size_t i) { return static_cast<std::size_t>(plan.training[i].bucket); };
  // Of a sum that begins now, or behind those before it.
  const auto arrival_of = [&](double bytes) {
    const double begin = std::max(now, link_free);
    link_free = begin + link.occupied(bytes);
    return begin + link.seconds(bytes);
  };
  // While it computes, this core also sends and receives: half of that when a sum begins, half when it is read, unless
  // the core has waited for it anyway.
  const auto handling = [&](std::size_t i) {
    const BucketRange& bucket = plan.buckets[bucket_of(i)];
    return link.busy_per_byte() / 2 * static_cast<double>((bucket.end - bucket.begin) * sizeof(float));
  };
  const auto update_next = [&] {
    const double arrival = arrivals[bucket_of(due.front())];
    now = std::max(arrival, now + handling(due.front())) + seconds[due.front()];
    due.pop_front();
  };
  for (std::size_t i = 0; i < plan.training.size(); ++i) {
    switch (plan.training[i].kind) {
      case OperationKind::contribute: {
        const BucketRange& bucket = plan.buckets[bucket_of(i)];
        arrivals[bucket_of(i)] = arrival_of(static_cast<double>((bucket.end - bucket.begin) * sizeof(float)));
        now += handling(i);
        break;
      }
      case OperationKind::give: {
        // A sum of so many bytes sends and receives 2 (n - 1) / n of them.
        const auto exchange = static_cast<std::size_t>(plan.training[i].exchange);
        const auto sent = static_cast<double>(sent_bytes(plan.graph.exchanges[exchange], plan.graph.rank));
        hand_overs[exchange] = arrival_of(sent * plan.graph.ranks / (2.0 * (plan.graph.ranks - 1)));
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
  divisions.push_back(divide_nothing(whole, ranks, batch, speeds));
  return divisions;
}

}  // namespace lockstep
