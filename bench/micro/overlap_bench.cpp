// Do gradients travel while a rank computes? The backward pass of a large Dense layer in small: 26 buckets of 416 KiB,
// some arithmetic before each is contributed, and updates as they come in. Measured: the arithmetic alone, the sums
// alone, both together; if nothing stood in each other's way, both would take as long as the longer of the two. What
// the network card has sent until the end of each piece of arithmetic shows whether bytes move meanwhile.
//
//     bench/overlap.py runs it between hosts; alone: scripts/mpirun.sh -np 2 -x LOCKSTEP_TEST_HOSTS=0,1 overlap_bench
//
// overlap_bench [MILLISECONDS [none|bfloat16 [DEVICE]]]: of arithmetic in a step; what travels; whose bytes to count.
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

#include "cluster/world.hpp"
#include "collective/make_communicator.hpp"
#include "core/clock.hpp"
#include "lockstep/core/error.hpp"

using namespace lockstep;

namespace {

constexpr std::size_t bucket_elements = std::size_t{104} << 10U;
constexpr std::size_t bucket_count = 26;
constexpr int rounds = 41;

/// Arithmetic that stays in registers, so many times: what a chunk of a layer is to a core, but for its memory.
float compute(std::size_t times) {
  std::array<float, 64> sums{};
  for (std::size_t t = 0; t < times; ++t) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] * 0.999F + static_cast<float>(i);
  }
  return sums[7];
}

struct Moment {
  double time;
  std::uint64_t sent;
};

class Bench {
 public:
  Bench(Communicator& communicator, double seconds, const std::string& device)
      : communicator_(communicator), counter_("/sys/class/net/" + device + "/statistics/tx_bytes") {
    std::vector<BucketRange> buckets;
    for (std::size_t b = 0; b < bucket_count; ++b) {
      buckets.push_back({b * bucket_elements, (b + 1) * bucket_elements});
    }
    const std::size_t elements = bucket_count * bucket_elements;
    arenas_ = communicator.allocate(elements, elements * sizeof(float), buckets);
    std::size_t times = 1000;  // found by doubling, then kept: the same work for everybody and in every step
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
  double measure(bool computes, bool sums) {
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) {
      communicator_.barrier();
      std::vector<double> all(static_cast<std::size_t>(communicator_.size()));
      all[static_cast<std::size_t>(communicator_.rank())] = time_of([&] { step(computes, sums); });
      communicator_.all_reduce_sum(all);
      seconds.push_back(*std::ranges::max_element(all));
    }
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  }

  [[nodiscard]] const std::vector<Moment>& moments() const noexcept { return moments_; }
  [[nodiscard]] float kept() const noexcept { return keep_; }

 private:
  static double time_of(const std::function<void()>& what) {
    const double begin = monotonic_seconds();
    what();
    return monotonic_seconds() - begin;
  }

  void note() {
    std::uint64_t sent = 0;
    if (counter_) {
      counter_.seekg(0);
      counter_ >> sent;
      counter_.clear();
      counter_.sync();
    }
    moments_.push_back({monotonic_seconds(), sent});
  }

  void update(std::size_t bucket) {
    const ReducedShare share = communicator_.reduce(bucket);
    auto* const weights = reinterpret_cast<float*>(arenas_.mirrored.data());
    for (const float* source : share.sources) {
      for (std::size_t i = share.begin; i < share.end; ++i) weights[i] -= 0.001F * source[i];
    }
    communicator_.publish(bucket);
  }

  /// As Step does it.
  void step(bool computes, bool sums) {
    moments_.clear();
    note();
    std::size_t done = 0;
    for (std::size_t b = 0; b < bucket_count; ++b) {
      if (computes) keep_ += compute(times_);
      note();
      if (!sums) continue;
      communicator_.contribute(b);
      communicator_.advance();
      while (done < b && communicator_.is_here(done)) update(done++);
    }
    while (sums && done < bucket_count) update(done++);
    for (std::size_t b = 0; sums && b < bucket_count; ++b) communicator_.await(b);
    note();
  }

  Communicator& communicator_;
  std::ifstream counter_;
  ArenaMemory arenas_;
  std::size_t times_ = 0;
  float keep_ = 0;
  std::vector<Moment> moments_;
};

void run(const World& world, double seconds, Compression compression, const std::string& device) {
  const auto communicator = make_communicator(world, Transport::mpi, nullptr, {}, compression);
  Bench bench(*communicator, seconds, device);
  const double warm_up = bench.measure(true, true);
  const double compute_s = bench.measure(true, false);
  const double sums_s = bench.measure(false, true);
  const double both_s = bench.measure(true, true);
  const std::vector<Moment> moments = bench.moments();
  if (!world.is_chief()) return;
  std::printf("{\"compute_ms\": %.3f, \"sums_ms\": %.3f, \"both_ms\": %.3f, \"first_ms\": %.3f, \"kept\": %d,\n",
              compute_s * 1e3, sums_s * 1e3, both_s * 1e3, warm_up * 1e3, bench.kept() > 0 ? 1 : 0);
  std::printf(" \"last_step\": [");  // milliseconds since its begin, bytes sent since then
  for (const Moment& moment : moments) {
    std::printf("%s[%.3f, %llu]", &moment == moments.data() ? "" : ", ", (moment.time - moments[0].time) * 1e3,
                static_cast<unsigned long long>(moment.sent - moments[0].sent));
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
    if (world.size() < 2) throw UsageError("overlap_bench needs two ranks: see the beginning of its source");
    run(world, milliseconds * 1e-3, compression == "none" ? Compression::none : Compression::bfloat16,
        argc > 3 ? argv[3] : "lo");
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    World::end_with_error(static_cast<int>(ExitCode::internal), error.what());
  }
}
