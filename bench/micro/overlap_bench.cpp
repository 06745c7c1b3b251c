// Does the all-reduce of gradients overlap a rank's compute? Emulates the backward pass of a large Dense layer: 26
// buckets of 416 KiB, compute before each bucket is marked ready, and an update when it is reduced. Measures compute
// alone, all-reduces alone, and both together, which with perfect overlap takes as long as the longer of the two. The
// network device's count of sent bytes after each bucket's compute shows whether bytes move during compute.
//
// bench/overlap.py runs it between hosts. On one machine:
//     scripts/mpirun.sh -np 2 -x LOCKSTEP_SIMULATED_HOSTS=0,1 overlap_bench [MILLISECONDS [none|bfloat16 [DEVICE]]]
//
// MILLISECONDS: compute per step; none or bfloat16: gradient compression; DEVICE: the network device to observe.
#include "cluster/world/world.hpp"
#include "collective/make_communicator.hpp"
#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

constexpr std::size_t bucket_elements = std::size_t{104} << 10U;
constexpr std::size_t bucket_count = 26;
constexpr int rounds = 41;

/// Arithmetic that stays in registers, `times` times. Uses the core as a layer does, but not the memory.
float compute(std::size_t times) {
  std::array<float, 64> sums{};
  for (std::size_t t = 0; t < times; ++t) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] * 0.999F + static_cast<float>(i);
  }
  return sums[7];
}

struct Sample {
  double time;
  std::uint64_t sent;
};

class Bench {
 public:
  Bench(Communicator& communicator, double seconds, const std::string& device)
      : communicator_(communicator), counter_("/sys/class/net/" + device + "/statistics/tx_bytes") {
    std::vector<Range> buckets;
    for (std::size_t b = 0; b < bucket_count; ++b) {
      buckets.push_back({b * bucket_elements, (b + 1) * bucket_elements});
    }
    const std::size_t elements = bucket_count * bucket_elements;
    arenas_ = communicator.allocate(elements, elements * sizeof(float), buckets);
    std::size_t times = 1000;  // found by doubling; equal on all ranks and in all steps
    double took = 0;
    while (took < 0.01) {
      times *= 2;
      took = time_of([&] { keep_ += compute(times); });
    }
    double wanted = seconds / bucket_count * static_cast<double>(times) / took;
    communicator.all_reduce_sum({&wanted, 1});
    times_ = static_cast<std::size_t>(wanted / communicator.size());
  }

  /// Median seconds of a step on the slowest rank.
  double measure(bool computes, bool reduces) {
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) {
      communicator_.barrier();
      std::vector<double> all(static_cast<std::size_t>(communicator_.size()));
      all[static_cast<std::size_t>(communicator_.rank())] = time_of([&] { step(computes, reduces); });
      communicator_.all_reduce_sum(all);
      seconds.push_back(*std::ranges::max_element(all));
    }
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  }

  [[nodiscard]] const std::vector<Sample>& samples() const noexcept { return samples_; }
  [[nodiscard]] float kept() const noexcept { return keep_; }

 private:
  static double time_of(const std::function<void()>& what) {
    const double begin = monotonic_seconds();
    what();
    return monotonic_seconds() - begin;
  }

  void record_bytes_sent() {
    std::uint64_t sent = 0;
    if (counter_) {
      counter_.seekg(0);
      counter_ >> sent;
      counter_.clear();
      counter_.sync();
    }
    samples_.push_back({monotonic_seconds(), sent});
  }

  void update(std::size_t bucket) {
    const ReducedShard shard = communicator_.wait_reduced(bucket);
    auto* const weights = reinterpret_cast<float*>(arenas_.mirrored.data());
    for (const float* source : shard.sources) {
      for (std::size_t i = shard.begin; i < shard.end; ++i) weights[i] -= 0.001F * source[i];
    }
    communicator_.mark_updated(bucket);
  }

  /// One step, as Step runs it.
  void step(bool computes, bool reduces) {
    samples_.clear();
    record_bytes_sent();
    std::size_t done = 0;
    for (std::size_t b = 0; b < bucket_count; ++b) {
      if (computes) keep_ += compute(times_);
      record_bytes_sent();
      if (!reduces) continue;
      communicator_.mark_ready(b);
      communicator_.make_progress();
      while (done < b && communicator_.is_reduced(done)) update(done++);
    }
    while (reduces && done < bucket_count) update(done++);
    for (std::size_t b = 0; reduces && b < bucket_count; ++b) communicator_.wait_updated(b);
    record_bytes_sent();
  }

  Communicator& communicator_;
  std::ifstream counter_;
  ArenaMemory arenas_;
  std::size_t times_ = 0;
  float keep_ = 0;
  std::vector<Sample> samples_;
};

void run(const World& world, double seconds, GradientCompression compression, const std::string& device) {
  const auto communicator = make_communicator(world, {.communication = Communication::mpi, .compression = compression});
  Bench bench(*communicator, seconds, device);
  const double warm_up = bench.measure(true, true);
  const double compute_s = bench.measure(true, false);
  const double all_reduce_s = bench.measure(false, true);
  const double both_s = bench.measure(true, true);
  const std::vector<Sample> samples = bench.samples();
  if (!world.is_chief()) return;
  std::printf(
      "{\"compute_ms\": %.3f, \"all_reduce_ms\": %.3f, \"overlapped_ms\": %.3f, \"first_ms\": %.3f, \"kept\": %d,\n",
      compute_s * 1e3, all_reduce_s * 1e3, both_s * 1e3, warm_up * 1e3, bench.kept() > 0 ? 1 : 0);
  std::printf(" \"last_step\": [");  // [milliseconds, bytes sent] since the step began
  for (const Sample& sample : samples) {
    std::printf("%s[%.3f, %llu]", &sample == samples.data() ? "" : ", ", (sample.time - samples[0].time) * 1e3,
                static_cast<unsigned long long>(sample.sent - samples[0].sent));
  }
  std::printf("]}\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const double milliseconds = argc > 1 ? std::atof(argv[1]) : 4;
    const std::string compression = argc > 2 ? argv[2] : "none";
    if (milliseconds <= 0 || (compression != "none" && compression != "bfloat16")) {
      throw UsageError("usage: overlap_bench [MILLISECONDS [none|bfloat16 [DEVICE]]]");
    }
    const World world;
    if (world.size() < 2) throw UsageError("overlap_bench needs two ranks; see the beginning of its source");
    run(world, milliseconds * 1e-3, compression == "none" ? GradientCompression::none : GradientCompression::bfloat16,
        argc > 3 ? argv[3] : "lo");
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    World::end_with_error(static_cast<int>(ExitCode::internal), error.what());
  }
}
