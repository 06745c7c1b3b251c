// See link_times.hpp. Networks let a burst pass faster than what they can carry for long, and a step's gradients are
// more than a burst: so many sums in a row are timed, too, and these tell the bandwidth.
#include "plan/link_times.hpp"

#include "core/clock.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep {

namespace {

constexpr std::size_t small_sum = 64;                       // bytes: latency is all it costs
constexpr std::size_t middle_sum = std::size_t{64} << 10U;  // what a division by features sends
constexpr std::size_t large_sum = std::size_t{416} << 10U;  // a bucket of a large layer
constexpr std::size_t in_a_row = 6;                         // large ones: more than a burst
constexpr std::size_t most_times = 7;
constexpr std::size_t least_times = 3;
constexpr double between_looks = 50e-6;  // seconds: about an operation of a step
constexpr double between_sums = 1e-3;    // seconds: what a step computes before its next sums
/// What TCP costs a core a byte: measured on an AMD EPYC (Zen 5), 250 us to send a megabyte and as much to receive it.
constexpr double tcp_per_byte = 0.5e-9;
constexpr double patience = 0.2;  // seconds: what would take longer is not timed, or not again

/// Sums by a communicator, timed.
class Timing {
 public:
  explicit Timing(Communicator& communicator) : communicator_(communicator) {
    std::vector<BucketRange> buckets;
    std::size_t elements = 0;
    const auto add = [&](std::size_t bytes) {
      buckets.push_back({elements, elements + bytes / sizeof(float)});
      elements = buckets.back().end;
    };
    add(small_sum);
    add(middle_sum);
    for (std::size_t i = 0; i < in_a_row; ++i) add(large_sum);
    const ArenaMemory memory = communicator.allocate(elements, elements * sizeof(float), std::move(buckets));
    gradients_ = memory.gradients;
    sums_ = {reinterpret_cast<float*>(memory.mirrored.data()), elements};
  }

  /// Seconds of the sums of these buckets, all under way at once: of all ranks on average, the median of several times.
  /// Who comes late to a sum waits the less, and the others the more, and in training ranks take turns at that.
  double seconds(std::size_t first, std::size_t count) {
    (void)once(first, count);  // connections are made
    // All ranks must count alike, so what they look at is everybody's clock.
    std::vector<double> times;
    double total = 0;
    while (times.size() < most_times && (times.size() < least_times || total < patience)) {
      total += times.emplace_back(average(once(first, count)));
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  /// Seconds that the large sums cost a core which has something else to do meanwhile, a byte; of the slowest rank.
  double busy_per_byte() {
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
    for (std::size_t bucket = first_large; bucket < first_large + in_a_row; ++bucket) {
      (void)timed([&] { communicator_.contribute(bucket); });
    }
    const auto all_here = [&] {
      for (std::size_t bucket = first_large; bucket < first_large + in_a_row; ++bucket) {
        if (!communicator_.is_here(bucket)) return false;
      }
      return true;
    };
    const double end = monotonic_seconds() + 2 * patience;
    while (!all_here() && monotonic_seconds() < end) {
      const double looked = timed([&] { communicator_.advance(); });
      while (monotonic_seconds() - looked < between_looks) {
      }
    }
    sum_up(first_large, in_a_row);
    return slowest(busy) / static_cast<double>(in_a_row * large_sum);
  }

 private:
  static constexpr std::size_t first_large = 2;

  double once(std::size_t first, std::size_t count) {
    compute();
    communicator_.barrier();
    const double begin = monotonic_seconds();
    for (std::size_t bucket = first; bucket < first + count; ++bucket) communicator_.contribute(bucket);
    sum_up(first, count);
    return monotonic_seconds() - begin;
  }

  /// As a step does first: gradients are new, in this core's cache, and the link may have a burst to give again.
  void compute() {
    const double end = monotonic_seconds() + between_sums;
    std::fill(gradients_.begin(), gradients_.end(), 0.0F);
    while (monotonic_seconds() < end) {
    }
  }

  void sum_up(std::size_t first, std::size_t count) {
    for (std::size_t bucket = first; bucket < first + count; ++bucket) {
      const ReducedShare share = communicator_.reduce(bucket);
      for (std::size_t i = share.begin; i < share.end; ++i) {
        sums_[i] = 0;
        for (const float* source : share.sources) sums_[i] += source[i];
      }
      communicator_.publish(bucket);
    }
    for (std::size_t bucket = first; bucket < first + count; ++bucket) communicator_.await(bucket);
  }

  double average(double seconds) {
    communicator_.all_reduce_sum({&seconds, 1});
    return seconds / communicator_.size();
  }

  double slowest(double seconds) {
    std::vector<double> everybodys(static_cast<std::size_t>(communicator_.size()), 0);
    everybodys[static_cast<std::size_t>(communicator_.rank())] = seconds;
    communicator_.all_reduce_sum(everybodys);
    return *std::max_element(everybodys.begin(), everybodys.end());
  }

  Communicator& communicator_;
  std::span<float> gradients_;
  std::span<float> sums_;
};

}  // namespace

LinkTimes::LinkTimes(double latency, double bytes_per_second, int ranks) {
  const double parts = 2.0 * (ranks - 1) / ranks;
  const double rounds = 2 * std::ceil(std::log2(ranks));
  busy_per_byte_ = parts * tcp_per_byte;
  for (const std::size_t size : {small_sum, large_sum}) {
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

double LinkTimes::seconds_per_byte() const {
  const auto& [many, late] = points_.back();
  const auto& [fewer, sooner] = points_[points_.size() - 2];
  return std::max(0.0, late - sooner) / (many - fewer);
}

Speeds LinkTimes::speeds(int ranks) const {
  constexpr double least_seconds_per_byte = 1e-15;
  Speeds speeds;
  speeds.latency = points_.front().second / 2;
  speeds.bytes_per_second = 2.0 * (ranks - 1) / ranks / std::max(seconds_per_byte(), least_seconds_per_byte);
  return speeds;
}

LinkTimes measure_link(Communicator& communicator) {
  struct Trial {
    std::size_t first, count, bytes;
  };
  constexpr std::array<Trial, 4> trials{
      {{0, 1, small_sum}, {1, 1, middle_sum}, {2, 1, large_sum}, {2, in_a_row, in_a_row * large_sum}}};
  Timing timing(communicator);
  std::vector<std::pair<double, double>> points;
  for (const Trial& trial : trials) {
    const auto bytes = static_cast<double>(trial.bytes);
    const bool is_slow = points.size() >= 2 && points.back().second * bytes / points.back().first > patience;
    if (is_slow) break;
    points.emplace_back(bytes, timing.seconds(trial.first, trial.count));
  }
  const bool was_quick = points.size() == trials.size();
  return LinkTimes(std::move(points), was_quick ? timing.busy_per_byte() : tcp_per_byte);
}

}  // namespace lockstep
