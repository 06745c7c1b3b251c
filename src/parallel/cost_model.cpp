// See cost_model.hpp.
#include "parallel/cost_model.hpp"

#include "core/overloaded.hpp"
#include "graph/work.hpp"
#include "plan/schedule.hpp"

#include <algorithm>
#include <numeric>
#include <variant>

namespace lockstep {

std::size_t all_to_all_bytes_sent(const AllToAllSpec& all_to_all, int rank) {
  const std::size_t all = std::accumulate(all_to_all.send_counts.begin(), all_to_all.send_counts.end(), std::size_t{0});
  return (all - all_to_all.send_counts[static_cast<std::size_t>(rank)]) * sizeof(float);
}

namespace {

/// Runs a schedule on a simulated clock instead of a device and a network.
class Simulation {
 public:
  Simulation(const Plan& plan, const std::vector<double>& seconds, const LinkModel& link)
      : plan_(plan),
        seconds_(seconds),
        link_(link),
        bucket_arrivals_(plan.buckets.size(), 0),
        all_to_all_arrivals_(plan.graph.all_to_alls.size(), 0) {
    bytes_.reserve(plan.buckets.size());
    for (const Range& bucket : plan.buckets) bytes_.push_back(bytes_between_hosts(bucket));
  }

  void run(std::size_t place) {
    std::visit(Overloaded{[&](const MarkReady& ready) { mark_ready(ready.bucket); },
                          [&](const StartAllToAll& start) { start_all_to_all(start.all_to_all); },
                          [&](const FinishAllToAll& finish) {
                            now_ = std::max(now_, all_to_all_arrivals_[finish.all_to_all]);
                          },
                          [](const WaitUpdated&) {},  // ranks of this host are assumed to be equally fast
                          [&](const auto&) { now_ += seconds_[place]; }},
               plan_.training[place]);
  }

  void update(std::size_t place, std::size_t bucket) {
    now_ = std::max(bucket_arrivals_[bucket], now_ + handling_seconds(bucket)) + seconds_[place];
  }

  [[nodiscard]] bool is_reduced(std::size_t bucket) const { return bucket_arrivals_[bucket] <= now_; }

  [[nodiscard]] double now() const noexcept { return now_; }

 private:
  /// Rows of Embeddings that are zero do not travel.
  [[nodiscard]] double bytes_between_hosts(const Range& bucket) const {
    auto elements = static_cast<double>(bucket.size());
    for (const Operation& embedding : plan_.reduced_embeddings()) {
      const ParameterSpec& parameter = plan_.graph.parameters[embedding.parameter];
      const std::size_t begin = std::max(bucket.begin, parameter.offset);
      const std::size_t end = std::min(bucket.end, parameter.offset + parameter.storage);
      const auto examples = static_cast<double>(plan_.graph.capacity);
      if (begin < end)
        elements -= static_cast<double>(end - begin) * (1 - expected_part_of_rows(plan_.graph, embedding, examples));
    }
    return elements * sizeof(float);
  }

  void mark_ready(std::size_t bucket) {
    bucket_arrivals_[bucket] = arrival_of(bytes_[bucket]);
    now_ += handling_seconds(bucket);
  }

  /// Converts the bytes sent to those of an equally long all-reduce, which sends 2 (ranks - 1) / ranks of its bytes.
  void start_all_to_all(std::size_t all_to_all) {
    const auto sent = static_cast<double>(all_to_all_bytes_sent(plan_.graph.all_to_alls[all_to_all], plan_.graph.rank));
    all_to_all_arrivals_[all_to_all] = arrival_of(sent * plan_.graph.ranks / (2.0 * (plan_.graph.ranks - 1)));
  }

  /// The time at which an all-reduce ends if it starts now, or when the link is free.
  double arrival_of(double bytes) {
    const double begin = std::max(now_, link_free_);
    link_free_ = begin + link_.occupied_seconds(bytes);
    return begin + link_.all_reduce_seconds(bytes);
  }

  /// The processor time of sending or receiving a bucket on the core that computes: half of the cost is paid when an
  /// all-reduce starts, half when its result is read, unless the core waits for the result anyway.
  [[nodiscard]] double handling_seconds(std::size_t bucket) const {
    return link_.cpu_seconds_per_byte() / 2 * bytes_[bucket];
  }

  const Plan& plan_;
  const std::vector<double>& seconds_;
  const LinkModel& link_;
  double now_ = 0;
  double link_free_ = 0;
  std::vector<double> bytes_;  ///< by bucket
  std::vector<double> bucket_arrivals_;
  std::vector<double> all_to_all_arrivals_;
};

}  // namespace

double simulate_step(const Plan& plan, const std::vector<double>& seconds, const LinkModel& link) {
  Simulation simulation(plan, seconds, link);
  Schedule(plan, true).run(simulation);
  return simulation.now();
}

std::vector<Sharding> candidate_shardings(const Graph& whole, int ranks, std::size_t batch,
                                          const HardwareModel& hardware) {
  std::vector<Sharding> shardings;
  for (const double factor : {1.0, 10.0, 0.1, 1e4}) {
    HardwareModel other = hardware;
    other.latency /= factor;
    other.bytes_per_second *= factor;
    const auto sharding = search_sharding(whole, ranks, batch, other);
    if (!sharding) break;
    if (std::find(shardings.begin(), shardings.end(), *sharding) == shardings.end()) shardings.push_back(*sharding);
  }
  shardings.push_back(replicate_all(whole, ranks, batch, hardware));
  return shardings;
}

}  // namespace lockstep
