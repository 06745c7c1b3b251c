// See link_model.hpp. Networks transfer a short burst faster than a long stream, and a step's gradients exceed a burst.
// The bandwidth is therefore measured with several large all-reduces in a row.
#include "parallel/link_model.hpp"

#include "core/clock.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep {

namespace {

constexpr std::size_t small_bytes = 64;                       // bytes: costs only latency
constexpr std::size_t medium_bytes = std::size_t{64} << 10U;  // typical for a tensor-parallel layer
constexpr std::size_t large_bytes = std::size_t{416} << 10U;  // a bucket of a large layer
constexpr std::size_t back_to_back = 6;                       // large all-reduces: more than a burst
constexpr std::size_t max_times = 7;
constexpr std::size_t min_times = 3;
constexpr double poll_interval = 50e-6;    // seconds: about one operation of a step
constexpr double compute_interval = 1e-3;  // seconds of compute before the timed all-reduces
/// Processor seconds that TCP costs per byte. Measured on an AMD EPYC (Zen 5): 250 us to send or receive a megabyte.
constexpr double tcp_per_byte = 0.5e-9;
constexpr double max_seconds = 0.2;  // larger sizes are skipped, and timing stops, beyond this

/// Times all-reduces of a communicator.
class AllReduceTimer {
 public:
  explicit AllReduceTimer(Communicator& communicator) : communicator_(communicator) {
    std::vector<Range> buckets;
    std::size_t elements = 0;
    const auto add = [&](std::size_t bytes) {
      buckets.push_back({elements, elements + bytes / sizeof(float)});
      elements = buckets.back().end;
    };
    add(small_bytes);
    add(medium_bytes);
    for (std::size_t i = 0; i < back_to_back; ++i) add(large_bytes);
    const ArenaMemory memory = communicator.allocate(elements, elements * sizeof(float), std::move(buckets));
    gradients_ = memory.gradients;
    sums_ = {reinterpret_cast<float*>(memory.mirrored.data()), elements};
  }

  /// Seconds to all-reduce these buckets, all in flight at once: the median of several times, each the mean over the
  /// ranks. The mean is used because a rank that starts late waits less, and the others wait more.
  double seconds(std::size_t first, std::size_t count) {
    (void)time_once(first, count);  // warm-up: opens connections
    // All ranks must stop after the same number of times, so they decide by the mean that all of them know.
    std::vector<double> times;
    double total = 0;
    while (times.size() < max_times && (times.size() < min_times || total < max_seconds)) {
      total += times.emplace_back(mean_over_ranks(time_once(first, count)));
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  /// Processor seconds per byte that large all-reduces cost a core that computes at the same time: the maximum over the
  /// ranks.
  double cpu_seconds_per_byte() {
    compute();
    communicator_.barrier();
    double busy = 0;
    const auto timed = [&](const auto& call) {
      const double begin = monotonic_seconds();
      call();
      const double end = monotonic_seconds();
      busy += end - begin;
      return end;
    };
    for (std::size_t bucket = first_large; bucket < first_large + back_to_back; ++bucket) {
      (void)timed([&] { communicator_.mark_ready(bucket); });
    }
    const auto all_reduced = [&] {
      for (std::size_t bucket = first_large; bucket < first_large + back_to_back; ++bucket) {
        if (!communicator_.is_reduced(bucket)) return false;
      }
      return true;
    };
    const double end = monotonic_seconds() + 2 * max_seconds;
    while (!all_reduced() && monotonic_seconds() < end) {
      const double looked = timed([&] { communicator_.make_progress(); });
      while (monotonic_seconds() - looked < poll_interval) {
      }
    }
    all_reduce(first_large, back_to_back);
    return max_over_ranks(busy) / static_cast<double>(back_to_back * large_bytes);
  }

 private:
  static constexpr std::size_t first_large = 2;

  double time_once(std::size_t first, std::size_t count) {
    compute();
    communicator_.barrier();
    const double begin = monotonic_seconds();
    for (std::size_t bucket = first; bucket < first + count; ++bucket) communicator_.mark_ready(bucket);
    all_reduce(first, count);
    return monotonic_seconds() - begin;
  }

  /// Imitates the beginning of a step: gradients are in this core's cache, and the link allows a burst again.
  void compute() {
    const double end = monotonic_seconds() + compute_interval;
    std::fill(gradients_.begin(), gradients_.end(), 0.0F);
    while (monotonic_seconds() < end) {
    }
  }

  void all_reduce(std::size_t first, std::size_t count) {
    for (std::size_t bucket = first; bucket < first + count; ++bucket) {
      const ReducedShard shard = communicator_.wait_reduced(bucket);
      for (std::size_t i = shard.begin; i < shard.end; ++i) {
        sums_[i] = 0;
        for (const float* source : shard.sources) sums_[i] += source[i];
      }
      communicator_.mark_updated(bucket);
    }
    for (std::size_t bucket = first; bucket < first + count; ++bucket) communicator_.wait_updated(bucket);
  }

  double mean_over_ranks(double seconds) {
    communicator_.all_reduce_sum({&seconds, 1});
    return seconds / communicator_.size();
  }

  double max_over_ranks(double seconds) {
    std::vector<double> all_ranks(static_cast<std::size_t>(communicator_.size()), 0);
    all_ranks[static_cast<std::size_t>(communicator_.rank())] = seconds;
    communicator_.all_reduce_sum(all_ranks);
    return *std::max_element(all_ranks.begin(), all_ranks.end());
  }

  Communicator& communicator_;
  std::span<float> gradients_;
  std::span<float> sums_;
};

}  // namespace

LinkModel::LinkModel(double latency, double bytes_per_second, int ranks) {
  const double parts = 2.0 * (ranks - 1) / ranks;
  const double rounds = 2 * std::ceil(std::log2(ranks));
  cpu_seconds_per_byte_ = parts * tcp_per_byte;
  for (const std::size_t size : {small_bytes, large_bytes}) {
    const auto bytes = static_cast<double>(size);
    points_.emplace_back(bytes, rounds * latency + parts * bytes / bytes_per_second);
  }
}

double LinkModel::all_reduce_seconds(double bytes) const {
  // Interpolates, and continues the last segment beyond the last point.
  std::size_t upper = 1;
  while (upper + 1 < points_.size() && points_[upper].first < bytes) ++upper;
  const auto& [low_bytes, low_seconds] = points_[upper - 1];
  const auto& [high_bytes, high_seconds] = points_[upper];
  const double slope = std::max(0.0, high_seconds - low_seconds) / (high_bytes - low_bytes);
  return low_seconds + slope * std::max(0.0, bytes - low_bytes);
}

double LinkModel::seconds_per_byte() const {
  const auto& [many, late] = points_.back();
  const auto& [fewer, sooner] = points_[points_.size() - 2];
  return std::max(0.0, late - sooner) / (many - fewer);
}

HardwareModel LinkModel::hardware_model(int ranks) const {
  constexpr double min_seconds_per_byte = 1e-15;
  HardwareModel hardware;
  hardware.latency = points_.front().second / 2;
  hardware.bytes_per_second = 2.0 * (ranks - 1) / ranks / std::max(seconds_per_byte(), min_seconds_per_byte);
  return hardware;
}

LinkModel measure_link(Communicator& communicator) {
  struct Trial {
    std::size_t first, count, bytes;
  };
  constexpr std::array<Trial, 4> trials{
      {{0, 1, small_bytes}, {1, 1, medium_bytes}, {2, 1, large_bytes}, {2, back_to_back, back_to_back * large_bytes}}};
  AllReduceTimer timer(communicator);
  std::vector<std::pair<double, double>> points;
  for (const Trial& trial : trials) {
    const auto bytes = static_cast<double>(trial.bytes);
    const bool is_slow = points.size() >= 2 && points.back().second * bytes / points.back().first > max_seconds;
    if (is_slow) break;
    points.emplace_back(bytes, timer.seconds(trial.first, trial.count));
  }
  const bool measured_all = points.size() == trials.size();
  return LinkModel(std::move(points), measured_all ? timer.cpu_seconds_per_byte() : tcp_per_byte);
}

}  // namespace lockstep
