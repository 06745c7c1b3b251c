// See choose_division.hpp.
#include "training/choose_division.hpp"

#include "core/environment.hpp"
#include "data/sampler.hpp"
#include "plan/plan.hpp"
#include "training/batch_feed.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
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

LinkTimes slowest_link(Runtime& runtime) {
  const LinkTimes mine = measure_link(*runtime.new_communicator());
  std::vector<double> seconds;
  for (const auto& point : mine.points()) seconds.push_back(point.second);
  take_slowest(runtime, seconds);
  std::vector<std::pair<double, double>> points = mine.points();
  for (std::size_t i = 0; i < points.size(); ++i) points[i].second = seconds[i];
  return LinkTimes(std::move(points));
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

/// Times the candidates; the first is by examples.
DivisionChoice choose_by_measuring(Runtime& runtime, const Graph& graph, const Optimizer& optimizer,
                                   std::size_t replicas) {
  const World& world = runtime.world();
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  DivisionChoice choice;
  choice.link = slowest_link(runtime);
  std::vector<std::optional<FeatureDivision>> candidates{std::nullopt};
  for (FeatureDivision& division : divisions_to_try(graph, world.size(), batch, choice.link.speeds(world.size()))) {
    candidates.emplace_back(std::move(division));
  }
  std::vector<double> seconds;
  const std::size_t slice = most_rows(batch, world.size(), replicas);
  for (const auto& candidate : candidates) {
    const std::size_t rows = candidate ? batch : slice;
    const Plan plan = plan_for(runtime.backend(), graph, candidate, world.size(), world.rank(), rows);
    runtime.control().barrier();  // neighbours compute at the same time, as they will
    const auto operations = measure_compute(runtime.backend(), plan, optimizer, rows, ranks_of_this_host(world));
    seconds.push_back(replay(plan, operations, choice.link));
  }
  take_slowest(runtime, seconds);
  choice.seconds_by_examples = seconds.front();
  if (seconds.size() == 1) return choice;
  const auto best = std::min_element(seconds.begin() + 1, seconds.end());
  choice.seconds_by_features = *best;
  choice.division = candidates[static_cast<std::size_t>(best - seconds.begin())];
  return choice;
}

/// The same without a clock.
DivisionChoice choose_by_rules(Runtime& runtime, const Graph& graph) {
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  const int ranks = runtime.world().size();
  const Speeds speeds = assumed_speeds(runtime.world());
  DivisionChoice choice;
  choice.division = divide_by_features(graph, ranks, batch, speeds);
  choice.seconds_by_examples = estimate_by_examples(graph, ranks, batch, speeds);
  if (choice.division) choice.seconds_by_features = choice.division->estimated_seconds;
  return choice;
}

DivisionChoice choose_automatically(Runtime& runtime, const Graph& graph, const Optimizer& optimizer,
                                    std::size_t replicas) {
  const int ranks = runtime.world().size();
  if (ranks == 1) return {.why = "there is one worker"};
  if (const std::string forbidden = forbidden_by(runtime); !forbidden.empty()) return {.why = forbidden};
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  if (!divide_by_features(graph, ranks, batch, {})) return {.why = why_not_by_features(graph)};
  DivisionChoice choice = runtime.options().deterministic || speeds_of_test()
                              ? choose_by_rules(runtime, graph)
                              : choose_by_measuring(runtime, graph, optimizer, replicas);
  const bool gains = choice.seconds_by_features <= (1 - least_gain) * choice.seconds_by_examples;
  std::array<std::byte, 1> features{gains ? std::byte{1} : std::byte{0}};
  runtime.control().broadcast(features, 0);
  if (features[0] == std::byte{0}) choice.division.reset();
  choice.why = "a step is expected to take " + in_milliseconds(choice.seconds_by_features) + " by features and " +
               in_milliseconds(choice.seconds_by_examples) + " by examples";
  return choice;
}

DivisionChoice take_features(Runtime& runtime, const Graph& graph) {
  const int ranks = runtime.world().size();
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  std::string forbidden = forbidden_by(runtime);
  auto division = divide_by_features(graph, ranks, batch, assumed_speeds(runtime.world()));
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
    const std::vector<double> operations = measure_compute(backend, plan, optimizer, rows, 1);
    const double compute = std::accumulate(operations.begin(), operations.end(), 0.0);
    return StepPrediction{workers, std::move(division), compute,
                          std::max(0.0, replay(plan, operations, link) - compute)};
  };
  std::vector<StepPrediction> predictions{predict(std::nullopt)};
  if (workers == 1) return predictions;
  std::vector<StepPrediction> others;
  for (FeatureDivision& division : divisions_to_try(graph, workers, batch, link.speeds(workers))) {
    others.push_back(predict(std::move(division)));
  }
  const auto best = std::min_element(others.begin(), others.end(),
                                     [](const auto& a, const auto& b) { return a.seconds() < b.seconds(); });
  if (best != others.end()) predictions.push_back(std::move(*best));
  return predictions;
}

}  // namespace lockstep
