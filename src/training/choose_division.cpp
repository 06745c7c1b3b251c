// See choose_division.hpp.
#include "training/choose_division.hpp"

#include "core/environment.hpp"
#include "core/log.hpp"
#include "data/sampler.hpp"
#include "plan/kernel_times.hpp"
#include "plan/plan.hpp"
#include "training/batch_feed.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

namespace lockstep {

namespace {

/// What forbids a division by features, whatever the model; empty: nothing. Values that all ranks compute must be the
/// same bits on all of them, for which processors and libraries have to be the same.
std::string forbidden_by(Runtime& runtime) {
  if (runtime.backend().queue() != nullptr) return "GPUs compute by examples only";
  const std::vector<std::string> devices = runtime.control().all_gather(runtime.backend().describe());
  for (std::size_t rank = 1; rank < devices.size(); ++rank) {
    if (devices[rank] == devices[0]) continue;
    return "what all workers compute must be equal to the last bit, but worker 0 computes on " + devices[0] +
           " and worker " + std::to_string(rank) + " on " + devices[rank];
  }
  return {};
}

/// LOCKSTEP_TEST_LINK=LATENCY,BYTES_PER_SECOND,FLOPS: so that tests see every way to divide.
std::optional<Speeds> speeds_of_test() {
  const std::string text = value_of(current_environment(), "LOCKSTEP_TEST_LINK");
  if (text.empty()) return std::nullopt;
  Speeds speeds;
  std::istringstream fields(text);
  char comma = 0;
  fields >> speeds.latency >> comma >> speeds.bytes_per_second >> comma >> speeds.flops_per_second;
  if (!fields) throw UsageError("LOCKSTEP_TEST_LINK is '" + text + "' but must be LATENCY,BYTES_PER_SECOND,FLOPS");
  return speeds;
}

/// LOCKSTEP_TEST_WAYS=CODE: the division that has this code (FeatureDivision::code), however dear it is.
std::optional<FeatureDivision> division_of_test(const Graph& graph, int ranks) {
  const std::string code = value_of(current_environment(), "LOCKSTEP_TEST_WAYS");
  if (code.empty()) return std::nullopt;
  auto division = division_of(graph, ranks, code);
  if (!division) throw UsageError("LOCKSTEP_TEST_WAYS is '" + code + "', which is no division of this model");
  return division;
}

/// What is assumed where nothing may be measured: memory within a host, a network of 1 Gbit/s between hosts.
Speeds assumed_speeds(const World& world) {
  if (const auto speeds = speeds_of_test()) return *speeds;
  if (world.hosts() == 1) return {.latency = 5e-6, .bytes_per_second = 5e9};
  return {.latency = 100e-6, .bytes_per_second = 0.125e9};
}

Plan plan_for(const Backend& backend, const Graph& graph, const std::optional<FeatureDivision>& division, int ranks,
              int rank, std::size_t rows) {
  Graph part = graph;
  if (division) {
    part = part_of(graph, *division, rank, rows, backend);
  } else {
    backend.lay_out(part, rows);
  }
  return make_plan(std::move(part), backend.plan_options(ranks));
}

/// The largest of all ranks' numbers, each for itself; the same on all of them.
void take_slowest(Runtime& runtime, std::vector<double>& numbers) {
  std::ostringstream text;
  text.precision(17);
  for (const double number : numbers) text << number << ' ';
  for (const std::string& other : runtime.control().all_gather(text.str())) {
    std::istringstream fields(other);
    for (double& number : numbers) {
      double theirs = 0;
      fields >> theirs;
      number = std::max(number, theirs);
    }
  }
}

int ranks_of_this_host(const World& world) {
  const std::vector<int>& hosts = world.host_of_rank();
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[world.rank()]));
}

std::string in_milliseconds(double seconds) {
  std::ostringstream text;
  text.precision(3);
  text << 1000 * seconds << " ms";
  return text.str();
}

/// Of the best one's time: more than so many times it cannot be chance.
constexpr double closeness = 2;

struct Candidate {
  std::optional<FeatureDivision> division;  ///< none: by examples
  double seconds = 0;
};

/// Which of them are not much longer than the shortest.
std::vector<std::size_t> close_to_best(const std::vector<double>& seconds) {
  const double best = *std::min_element(seconds.begin(), seconds.end());
  std::vector<std::size_t> close;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] <= closeness * best) close.push_back(i);
  }
  return close;
}

/// Times the candidates; the first is by examples. Processors that others use, too, are slow at times: those that come
/// close to the best are timed again, and the shorter time holds.
std::vector<Candidate> measure_candidates(Runtime& runtime, const Graph& graph, const Optimizer& optimizer,
                                          std::size_t replicas, const LinkTimes& link) {
  const World& world = runtime.world();
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  std::vector<Candidate> candidates{{std::nullopt}};
  for (FeatureDivision& division : divisions_to_try(graph, world.size(), batch, link.speeds(world.size()))) {
    candidates.push_back({std::move(division)});
  }
  const std::size_t slice = most_rows(batch, world.size(), replicas);
  std::vector<double> seconds(candidates.size(), std::numeric_limits<double>::infinity());
  const auto measure = [&](const std::vector<std::size_t>& some) {
    std::vector<double> measured;
    for (const std::size_t i : some) {
      const std::size_t rows = candidates[i].division ? batch : slice;
      const Plan plan = plan_for(runtime.backend(), graph, candidates[i].division, world.size(), world.rank(), rows);
      runtime.control().barrier();  // neighbours compute at the same time, as they will
      const auto operations =
          measure_kernels(runtime.backend(), plan, optimizer, rows, ranks_of_this_host(world), world.size());
      measured.push_back(replay(plan, operations, link));
    }
    take_slowest(runtime, measured);
    for (std::size_t k = 0; k < some.size(); ++k) seconds[some[k]] = std::min(seconds[some[k]], measured[k]);
  };
  std::vector<std::size_t> all(candidates.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  measure(all);
  if (const auto close = close_to_best(seconds); close.size() > 1) measure(close);
  for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].seconds = seconds[i];
  return candidates;
}

/// The same without a clock.
std::vector<Candidate> estimate_candidates(Runtime& runtime, const Graph& graph) {
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  const int ranks = runtime.world().size();
  const Speeds speeds = assumed_speeds(runtime.world());
  std::vector<Candidate> candidates{{std::nullopt, estimate_by_examples(graph, ranks, batch, speeds)}};
  for (auto division :
       {divide_by_features(graph, ranks, batch, speeds), std::optional(divide_nothing(graph, ranks, batch, speeds))}) {
    if (division) candidates.push_back({division, division->estimated_seconds});
  }
  return candidates;
}

DivisionChoice choose_automatically(Runtime& runtime, const Graph& graph, const Optimizer& optimizer,
                                    std::size_t replicas) {
  if (runtime.world().size() == 1) return {.why = "there is one worker"};
  if (const std::string forbidden = forbidden_by(runtime); !forbidden.empty()) return {.why = forbidden};
  DivisionChoice choice;
  const bool measures = !runtime.options().deterministic && !speeds_of_test();
  if (measures) choice.link = measure_link(*runtime.new_communicator());
  std::vector<Candidate> candidates = measures ? measure_candidates(runtime, graph, optimizer, replicas, choice.link)
                                               : estimate_candidates(runtime, graph);
  std::vector<double> seconds;
  for (const Candidate& candidate : candidates) {
    seconds.push_back(candidate.seconds);
    const auto [told, is_first] = choice.predicted.emplace(name_of(candidate.division), candidate.seconds);
    if (!is_first) told->second = std::min(told->second, candidate.seconds);
  }
  const std::optional<FeatureDivision>& mine = candidates[best_of(seconds)].division;
  const std::string code = mine ? mine->code() : "";
  const std::string chiefs = runtime.control().all_gather(code).front();
  if (!chiefs.empty()) choice.division = division_of(graph, runtime.world().size(), chiefs);
  if (chiefs != code) {
    log_warning("worker " + std::to_string(runtime.world().rank()) + " would divide by " + name_of(mine) +
                ", but the chief's choice holds: by " + name_of(choice.division));
  }
  choice.why = "a step is expected to take " + in_milliseconds(choice.predicted.at("examples")) + " by examples, ";
  const auto by_features = choice.predicted.find("features");
  if (by_features != choice.predicted.end()) choice.why += in_milliseconds(by_features->second) + " by features, ";
  choice.why += "and " + in_milliseconds(choice.predicted.at("none")) + " where every worker computes all";
  if (!choice.division && *std::min_element(seconds.begin(), seconds.end()) < seconds.front()) {
    choice.why += "; a gain of less than " + std::to_string(std::lround(100 * least_gain)) + " % is not taken";
  }
  if (by_features == choice.predicted.end())
    choice.why += "; by features is impossible, since " + why_not_by_features(graph);
  return choice;
}

DivisionChoice take_features(Runtime& runtime, const Graph& graph) {
  const int ranks = runtime.world().size();
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  std::string forbidden = forbidden_by(runtime);
  auto division = division_of_test(graph, ranks);
  if (!division) division = divide_by_features(graph, ranks, batch, assumed_speeds(runtime.world()));
  if (forbidden.empty() && !division) forbidden = why_not_by_features(graph);
  if (!forbidden.empty()) {
    throw UsageError("--division features: the model cannot be divided by features, since " + forbidden +
                     "; use --division examples");
  }
  if (ranks == 1) return {.why = "there is one worker"};  // whose part is the whole
  DivisionChoice choice{.division = std::move(division), .why = "features were asked for"};
  return choice;
}

}  // namespace

std::string name_of(const std::optional<FeatureDivision>& division) {
  if (!division) return "examples";
  return division->divides_anything() ? "features" : "none";
}

std::size_t best_of(const std::vector<double>& seconds) {
  const auto best = std::min_element(seconds.begin(), seconds.end());
  return *best <= (1 - least_gain) * seconds.front() ? static_cast<std::size_t>(best - seconds.begin()) : 0;
}

DivisionChoice choose_division(Runtime& runtime, const Graph& graph, const Optimizer& optimizer, std::size_t replicas) {
  switch (runtime.options().division) {
    case Division::automatic: return choose_automatically(runtime, graph, optimizer, replicas);
    case Division::features: return take_features(runtime, graph);
    case Division::examples: break;
  }
  return {.why = "examples were asked for"};
}

std::vector<StepPrediction> predict_steps(const Backend& backend, const Graph& graph, const Optimizer& optimizer,
                                          std::size_t batch, int workers, double latency, double bytes_per_second) {
  const LinkTimes link(latency, bytes_per_second, workers);
  const auto predict = [&](std::optional<FeatureDivision> division) {
    const std::size_t rows = division ? batch : most_rows(batch, workers, static_cast<std::size_t>(workers));
    const Plan plan = plan_for(backend, graph, division, workers, 0, rows);
    const std::vector<double> operations = measure_kernels(backend, plan, optimizer, rows, 1, workers);
    const double compute = std::accumulate(operations.begin(), operations.end(), 0.0);
    return StepPrediction{workers, std::move(division), compute,
                          std::max(0.0, replay(plan, operations, link) - compute)};
  };
  std::vector<StepPrediction> predictions{predict(std::nullopt)};
  if (workers == 1) return predictions;
  for (FeatureDivision& division : divisions_to_try(graph, workers, batch, link.speeds(workers))) {
    StepPrediction next = predict(std::move(division));
    StepPrediction& last = predictions.back();
    const bool alike = last.division && last.division->divides_anything() == next.division->divides_anything();
    if (!alike) {
      predictions.push_back(std::move(next));
    } else if (next.seconds() < last.seconds()) {
      last = std::move(next);
    }
  }
  return predictions;
}

}  // namespace lockstep
