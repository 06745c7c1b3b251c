// ProcessGroup under mpirun: averages in closed form, ranks that join, ranks that disagree. A world ends MPI only once,
// so all cases share one group.
#include "collective/process_group.hpp"
#include "cluster/world/world.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// Gradients and averages of one optimizer.
struct Gradients {
  explicit Gradients(const std::vector<std::size_t>& sizes) {
    for (const std::size_t size : sizes) values.emplace_back(size);
    for (std::vector<float>& each : values) {
      in.push_back(each.data());
      out.push_back(each.data());
    }
  }

  void fill(float value) {
    for (std::size_t g = 0; g < values.size(); ++g) {
      for (std::size_t i = 0; i < values[g].size(); ++i) values[g][i] = value * static_cast<float>(g + i % 5 + 1);
    }
  }

  [[nodiscard]] bool are(float value) const {
    for (std::size_t g = 0; g < values.size(); ++g) {
      for (std::size_t i = 0; i < values[g].size(); ++i) {
        if (values[g][i] != value * static_cast<float>(g + i % 5 + 1)) return false;
      }
    }
    return true;
  }

  std::vector<std::vector<float>> values;
  std::vector<const float*> in;
  std::vector<float*> out;
};

}  // namespace

TEST_CASE("ranks average, join, sum, broadcast and gather, and find out when they disagree") {
  ProcessGroup group({.timeout = 60});
  const int ranks = static_cast<int>(group.host_of_rank().size());
  const auto rank = static_cast<float>(group.rank());
  const float sum_of_ranks = static_cast<float>(ranks * (ranks - 1)) / 2;
  const std::vector<std::size_t> sizes{3, 70000, 0, 1, 2000};

  for (const std::size_t bucket_elements : {std::size_t{1}, std::size_t{2500}, std::size_t{1} << 20U}) {
    for (const GradientCompression compression : {GradientCompression::none, GradientCompression::bfloat16}) {
      CAPTURE(bucket_elements, static_cast<int>(compression));
      const std::size_t reducer = group.make_reducer(sizes, bucket_elements, compression, 0);
      Gradients gradients(sizes);

      gradients.fill(rank + 1);  // equal weights
      const StepAgreement all = group.reduce(reducer, gradients.in, gradients.out, 2);
      REQUIRE(all.contributing == ranks);
      REQUIRE(all.weight == 2 * ranks);
      const float mean = (sum_of_ranks + static_cast<float>(ranks)) / static_cast<float>(ranks);
      if (ranks != 3) REQUIRE(gradients.are(mean));  // a third is rounded

      gradients.fill(std::numeric_limits<float>::quiet_NaN());  // what a rank without a batch passes is ignored
      if (group.rank() == ranks - 1) gradients.fill(7);
      const StepAgreement one = group.reduce(reducer, gradients.in, gradients.out, group.rank() == ranks - 1 ? 1 : 0);
      REQUIRE(one.contributing == 1);
      REQUIRE(gradients.are(7));

      gradients.fill(4);  // gradients in any order, each once
      for (const std::size_t i : {4U, 0U, 3U, 2U}) group.contribute(reducer, i, gradients.in[i], 1);
      REQUIRE_THROWS_AS(group.contribute(reducer, 3, gradients.in[3], 1), UsageError);
      REQUIRE_FALSE(group.has_contributed(reducer, 1));
      group.contribute(reducer, 1, gradients.in[1], 1);
      REQUIRE(group.finish(reducer, gradients.out).weight == ranks);
      REQUIRE(gradients.are(4));
    }
  }
  REQUIRE(group.join().is_uneven == (ranks > 1));  // only the last rank had a batch in every step

  // Rank r contributes to r + 1 steps. The others join as zeros of no weight.
  const std::size_t reducer = group.make_reducer(sizes, 1000, GradientCompression::none, 1);
  Gradients gradients(sizes);
  for (int step = 0; step <= group.rank(); ++step) {
    gradients.fill(rank + 1);
    REQUIRE(group.reduce(reducer, gradients.in, gradients.out, 1).contributing == ranks - step);
    const std::vector<std::string> rows = group.gather_sparse(reducer, std::string(10, 'x'));
    REQUIRE(static_cast<int>(std::ranges::count(rows, std::string(10, 'x'))) == ranks - step);
    if (step == ranks - 1) REQUIRE(gradients.are(static_cast<float>(ranks)));
  }
  const JoinResult joined = group.join();
  REQUIRE(joined.steps == static_cast<std::uint64_t>(ranks));
  REQUIRE(joined.source == ranks - 1);
  REQUIRE(joined.is_uneven == (ranks > 1));
  REQUIRE_FALSE(group.join().is_uneven);

  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1025}, std::size_t{600000}}) {
    std::vector<float> singles(size, rank);
    std::vector<double> doubles(size, rank);
    group.all_reduce_sum(std::span(singles));
    group.all_reduce_sum(std::span(doubles));
    REQUIRE(std::ranges::all_of(singles, [&](float each) { return each == sum_of_ranks; }));
    REQUIRE(std::ranges::all_of(doubles, [&](double each) { return each == static_cast<double>(sum_of_ranks); }));
  }
  REQUIRE(group.broadcast(group.rank() == ranks - 1 ? "from the last" : "other", ranks - 1) == "from the last");
  const std::vector<std::string> texts = group.all_gather(std::string(static_cast<std::size_t>(group.rank()), 'r'));
  for (std::size_t r = 0; r < texts.size(); ++r) REQUIRE(texts[r] == std::string(r, 'r'));

  if (ranks > 1) {
    std::string message;
    try {
      if (group.rank() == 0) {
        group.barrier();
      } else {
        (void)group.all_gather("x");
      }
    } catch (const UsageError& error) {
      message = error.what();
    }
    CAPTURE(message);
    REQUIRE(message.find("rank 0 waits in a barrier, rank 1 gathers objects") != std::string::npos);
    REQUIRE_THROWS_AS(group.barrier(), UsageError);  // broken for good
  }
}
