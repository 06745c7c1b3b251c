// Prints the floor of a step, the sum of its bare kernels, and the sum of Lockstep's operations, as JSON. One thread.
// Each figure is the median over rounds in which all rows take turns, with warm caches; the bare kernels also run one
// after the other. bench/step_floor.py compares them with real steps.
//
//   taskset -c 0 build/release/bin/step_floor [ROUNDS [JOB ...]]       a JOB: keras_mnist/64/f32, FILE.keras/32/f32
//
// The programs' global batch is 128: a local batch of 64 is that of one of two ranks, which updates half of the weights
// with the sum of two gradients. A file's model is that of one rank. Operations without a oneDNN primitive (gather,
// loss, embedding, padding) are not part of the floor.
#include "micro/step_work.hpp"

#include "core/clock.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using Json = nlohmann::ordered_json;

constexpr std::size_t global_batch = 128;

/// A function with its measured times.
struct Timing {
  std::function<void()> run;
  std::vector<double> milliseconds = {};

  /// The first call of a round warms the caches and does not count.
  void round() {
    constexpr int calls = 4;
    run();
    for (int i = 0; i < calls; ++i) {
      const double begin = monotonic_seconds();
      run();
      milliseconds.push_back((monotonic_seconds() - begin) * 1e3);
    }
  }
  double median() {
    const auto middle = milliseconds.begin() + std::ssize(milliseconds) / 2;
    std::nth_element(milliseconds.begin(), middle, milliseconds.end());
    return *middle;
  }
};

struct TimedRow {
  Row row;
  Timing ours;
  std::vector<BareKernel> kernels;
  std::vector<Timing> bare = {};  ///< in the order of `kernels`: all algorithms of all parts
};

/// The fastest algorithms of all parts.
struct Fastest {
  double milliseconds = 0;  ///< their sum
  std::vector<BareKernel> kernels = {};
};

Fastest fastest_of(TimedRow& timed) {
  std::vector<std::pair<double, const BareKernel*>> chosen;
  for (std::size_t i = 0; i < timed.kernels.size(); ++i) {
    const std::pair candidate{timed.bare[i].median(), &timed.kernels[i]};
    const auto same = std::find_if(chosen.begin(), chosen.end(),
                                   [&](const auto& other) { return other.second->part == candidate.second->part; });
    if (same == chosen.end()) {
      chosen.push_back(candidate);
    } else if (candidate.first < same->first) {
      *same = candidate;
    }
  }
  Fastest fastest;
  for (const auto& [milliseconds, kernel] : chosen) {
    fastest.milliseconds += milliseconds;
    fastest.kernels.push_back(*kernel);
  }
  return fastest;
}

/// The milliseconds of all kernels, one after the other, as in a step: what a kernel reads has left the caches since
/// the last pass.
double time_in_sequence(const std::vector<BareKernel>& kernels, int passes) {
  Timing sequence{[&kernels] {
    for (const BareKernel& kernel : kernels) kernel.run();
  }};
  for (int pass = 0; pass < passes; ++pass) sequence.round();
  return sequence.median();
}

double rounded(double milliseconds) { return std::round(milliseconds * 1e4) / 1e4; }

Json measure(const Job& job, int rounds) {
  StepWork work(job);
  std::vector<TimedRow> rows;
  for (Row& row : rows_of(work.plan())) rows.push_back({row, {[&work, row] { work.run(row); }}, work.bare(row)});
  for (TimedRow& timed : rows) {
    for (const BareKernel& kernel : timed.kernels) timed.bare.push_back({kernel.run});
  }
  for (int round = 0; round < rounds; ++round) {
    work.run_step();
    for (TimedRow& timed : rows) {
      timed.ours.round();
      for (Timing& bare : timed.bare) bare.round();
    }
  }
  double ours = 0;
  double bare = 0;
  std::vector<BareKernel> kernels;
  Json operations = Json::array();
  for (TimedRow& timed : rows) {
    Json entry{{"name", timed.row.name},
               {"lockstep_ms", rounded(timed.ours.median())},
               {"lockstep", work.implementation(timed.row)}};
    ours += timed.ours.median();
    if (!timed.kernels.empty()) {
      const Fastest fastest = fastest_of(timed);
      entry["bare_ms"] = rounded(fastest.milliseconds);
      entry["bare"] = describe(fastest.kernels);
      bare += fastest.milliseconds;
      kernels.insert(kernels.end(), fastest.kernels.begin(), fastest.kernels.end());
    }
    operations.push_back(std::move(entry));
  }
  return {{"model", job.model},
          {"local_batch", job.local_batch},
          {"ranks", job.ranks},
          {"precision", job.bfloat16 ? "mixed_bfloat16" : "float32"},
          {"lockstep_ms", rounded(ours)},
          {"bare_ms", rounded(bare)},
          {"bare_in_sequence_ms", rounded(time_in_sequence(kernels, std::max(rounds / 4, 1)))},
          {"operations", operations}};
}

int rounds_of(std::string_view text) {
  const auto rounds = parse_number<int>(text);
  if (!rounds || *rounds < 1) {
    throw UsageError("usage: step_floor [ROUNDS [JOB ...]], with jobs such as keras_mnist/64/f32");
  }
  return *rounds;
}

void run(const std::vector<std::string>& arguments) {
  const int rounds = arguments.empty() ? 30 : rounds_of(arguments.front());
  std::vector<Job> jobs = all_jobs();
  if (arguments.size() > 1) {
    jobs.clear();
    for (std::size_t i = 1; i < arguments.size(); ++i) jobs.push_back(job_named(arguments[i]));
  }
  Json result{{"onednn", onednn::version()}, {"rounds", rounds}, {"jobs", Json::array()}};
  for (Job& job : jobs) {
    if (!job.model.ends_with(".keras")) job.ranks = static_cast<int>(global_batch / job.local_batch);
    result["jobs"].push_back(measure(job, rounds));
  }
  std::printf("%s\n", result.dump(2).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
#ifndef NDEBUG
    std::fprintf(stderr, "WARNING: debug build; the figures are meaningless\n");
#endif
    run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "step_floor: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_floor: %s\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}
