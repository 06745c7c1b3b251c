// See calibrate.hpp.
#include "parallel/calibrate.hpp"

#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "core/range.hpp"
#include "parallel/cost_model.hpp"
#include "parallel/measure_kernels.hpp"
#include "plan/plan.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace lockstep {

namespace {

/// The reason why no model can be tensor parallel in this world; empty if there is none. Replicated values must be
/// bitwise equal on all ranks, so processors and libraries must be the same.
std::string tensor_parallel_obstacle(const CalibrationContext& context) {
  if (context.backend.device_streams() != nullptr) return "GPUs support only data parallelism";
  const std::vector<std::string> devices = context.control.all_gather(context.backend.describe());
  for (std::size_t rank = 1; rank < devices.size(); ++rank) {
    if (devices[rank] == devices[0]) continue;
    return fmt::format("it needs equal devices on all workers, but worker 0 computes on {} and worker {} on {}",
                       devices[0], rank, devices[rank]);
  }
  return {};
}

/// The hardware that is assumed instead of measured: --assumed-hardware, else shared memory within a host and 1 Gbit/s
/// between hosts.
HardwareModel assumed_hardware_model(const CalibrationContext& context) {
  if (!context.assumed_hardware.empty()) {
    const auto numbers = parse_numbers<double>(context.assumed_hardware);
    if (!numbers || numbers->size() != 3) {
      throw UsageError(fmt::format("--assumed-hardware is '{}' but must be LATENCY,BYTES_PER_SECOND,FLOPS",
                                   context.assumed_hardware));
    }
    return {.latency = numbers->at(0), .bytes_per_second = numbers->at(1), .flops_per_second = numbers->at(2)};
  }
  const std::vector<int>& hosts = context.host_of_rank;
  if (std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) == hosts.end())
    return {.latency = 5e-6, .bytes_per_second = 5e9};
  return {.latency = 100e-6, .bytes_per_second = 0.125e9};
}

Plan plan_for(const Backend& backend, const Graph& graph, const std::optional<Sharding>& sharding, int ranks, int rank,
              std::size_t num_examples) {
  Graph shard = graph;
  if (sharding) {
    shard = shard_graph(graph, *sharding, rank, num_examples, backend);
  } else {
    backend.lay_out(shard, num_examples);
  }
  return make_plan(std::move(shard), backend.plan_options(ranks));
}

/// Replaces each number by its maximum over the ranks.
void max_over_ranks(Communicator& control, std::vector<double>& numbers) {
  const std::string mine(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  for (const std::string& other : control.all_gather(mine)) {
    std::vector<double> theirs(numbers.size());
    std::memcpy(theirs.data(), other.data(), std::min(other.size(), mine.size()));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::max(numbers[i], theirs[i]);
  }
}

int ranks_on_this_host(const CalibrationContext& context) {
  const std::vector<int>& hosts = context.host_of_rank;
  return static_cast<int>(
      std::count(hosts.begin(), hosts.end(), hosts[static_cast<std::size_t>(context.control.rank())]));
}

std::string in_milliseconds(double seconds) { return fmt::format("{:.3g} ms", 1000 * seconds); }

/// Candidates slower than the best by more than this factor are not measured again: noise does not explain it.
constexpr double remeasure_factor = 2;

struct Candidate {
  std::optional<Sharding> sharding;  ///< none: data parallel
  double seconds = 0;
};

/// The indices of the times up to remeasure_factor times the shortest.
std::vector<std::size_t> close_to_best(const std::vector<double>& seconds) {
  const double best = *std::min_element(seconds.begin(), seconds.end());
  std::vector<std::size_t> close;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] <= remeasure_factor * best) close.push_back(i);
  }
  return close;
}

/// Times the candidates; the first is data parallel. Other programs may slow a processor down, so candidates close to
/// the best are timed again, and the shorter time counts.
std::vector<Candidate> measure_candidates(const CalibrationContext& context, const Graph& graph,
                                          const Optimizer& optimizer, const LinkModel& link) {
  const int ranks = context.control.size();
  const std::size_t batch = context.global_batch_size;
  std::vector<Candidate> candidates{{std::nullopt}};
  for (Sharding& sharding : candidate_shardings(graph, ranks, batch, link.hardware_model(ranks))) {
    candidates.push_back({std::move(sharding)});
  }
  const std::size_t slice = max_examples_per_rank(batch, ranks, context.batch_norm_replicas);
  std::vector<double> seconds(candidates.size(), std::numeric_limits<double>::infinity());
  const auto measure = [&](const std::vector<std::size_t>& some) {
    std::vector<double> measured;
    for (const std::size_t i : some) {
      const std::size_t num_examples = candidates[i].sharding ? batch : slice;
      const Plan plan =
          plan_for(context.backend, graph, candidates[i].sharding, ranks, context.control.rank(), num_examples);
      context.control.barrier();  // the ranks of a host compute at the same time, as in training
      const auto operations =
          measure_kernels(context.backend, plan, optimizer, num_examples, ranks_on_this_host(context), ranks);
      measured.push_back(simulate_step(plan, operations, link));
    }
    max_over_ranks(context.control, measured);
    for (std::size_t k = 0; k < some.size(); ++k) seconds[some[k]] = std::min(seconds[some[k]], measured[k]);
  };
  std::vector<std::size_t> all(candidates.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  measure(all);
  if (const auto close = close_to_best(seconds); close.size() > 1) measure(close);
  for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].seconds = seconds[i];
  return candidates;
}

/// Estimates the candidates' times without measuring.
std::vector<Candidate> estimate_candidates(const CalibrationContext& context, const Graph& graph) {
  const std::size_t batch = context.global_batch_size;
  const int ranks = context.control.size();
  const HardwareModel hardware = assumed_hardware_model(context);
  std::vector<Candidate> candidates{{std::nullopt, estimate_data_parallel(graph, ranks, batch, hardware)}};
  for (auto sharding :
       {search_sharding(graph, ranks, batch, hardware), std::optional(replicate_all(graph, ranks, batch, hardware))}) {
    if (sharding) candidates.push_back({sharding, sharding->estimated_seconds});
  }
  return candidates;
}

}  // namespace

std::string parallelism_name(const std::optional<Sharding>& sharding) {
  if (!sharding) return "data";
  return sharding->is_any_sharded() ? "tensor" : "replicated";
}

std::size_t best_candidate(const std::vector<double>& seconds) {
  const auto best = std::min_element(seconds.begin(), seconds.end());
  return *best <= (1 - min_gain) * seconds.front() ? static_cast<std::size_t>(best - seconds.begin()) : 0;
}

ParallelismChoice calibrate(const CalibrationContext& context, const Graph& graph, const Optimizer& optimizer) {
  if (context.control.size() == 1) return {.reason = "there is one worker"};
  if (const std::string obstacle = tensor_parallel_obstacle(context); !obstacle.empty()) return {.reason = obstacle};
  ParallelismChoice choice;
  const bool measures = !context.deterministic && context.assumed_hardware.empty();
  const std::vector<std::string> modes = context.control.all_gather(measures ? "measure" : "assume");
  if (std::ranges::count(modes, modes.front()) != std::ssize(modes)) {
    throw UsageError("some workers have --assumed-hardware and others do not; give it to all or to none");
  }
  if (measures) choice.link = measure_link(*context.new_communicator());
  std::vector<Candidate> candidates =
      measures ? measure_candidates(context, graph, optimizer, choice.link) : estimate_candidates(context, graph);
  std::vector<double> seconds;
  for (const Candidate& candidate : candidates) {
    seconds.push_back(candidate.seconds);
    const auto [told, is_first] = choice.predicted.emplace(parallelism_name(candidate.sharding), candidate.seconds);
    if (!is_first) told->second = std::min(told->second, candidate.seconds);
  }
  const std::optional<Sharding>& mine = candidates[best_candidate(seconds)].sharding;
  const std::string code = mine ? mine->code() : "";
  const std::string chiefs = context.control.all_gather(code).front();
  if (!chiefs.empty()) choice.sharding = sharding_from_code(graph, context.control.size(), chiefs);
  if (chiefs != code) {
    log_warning(fmt::format("worker {} would choose parallelism {}, but uses the chief's choice: {}",
                            context.control.rank(), parallelism_name(mine), parallelism_name(choice.sharding)));
  }
  choice.reason = "predicted step: " + in_milliseconds(choice.predicted.at("data")) + " data parallel, ";
  const auto tensor_parallel = choice.predicted.find("tensor");
  if (tensor_parallel != choice.predicted.end())
    choice.reason += in_milliseconds(tensor_parallel->second) + " tensor parallel, ";
  choice.reason += in_milliseconds(choice.predicted.at("replicated")) + " replicated";
  if (choice.sharding && !choice.sharding->is_any_sharded())
    choice.reason += "; every worker computes the whole step, so one worker alone is as fast";
  if (!choice.sharding && *std::min_element(seconds.begin(), seconds.end()) < seconds.front()) {
    choice.reason += fmt::format("; gains below {:.0f} % are ignored", 100 * min_gain);
  }
  if (tensor_parallel == choice.predicted.end())
    choice.reason += "; tensor parallelism is not possible, because " + why_not_tensor_parallel(graph);
  return choice;
}

ParallelismChoice require_tensor_parallel(const CalibrationContext& context, const Graph& graph) {
  const int ranks = context.control.size();
  std::string obstacle = tensor_parallel_obstacle(context);
  const bool is_searched = context.sharding_code.empty();
  auto sharding = is_searched
                      ? search_sharding(graph, ranks, context.global_batch_size, assumed_hardware_model(context))
                      : sharding_from_code(graph, ranks, context.sharding_code);
  if (!sharding && !is_searched) {
    throw UsageError(fmt::format("--sharding is '{}', which is no sharding of this model", context.sharding_code));
  }
  if (obstacle.empty() && !sharding) obstacle = why_not_tensor_parallel(graph);
  if (!obstacle.empty()) {
    throw UsageError("--parallelism tensor: the model cannot be sharded, because " + obstacle +
                     "; use --parallelism data");
  }
  if (ranks == 1) return {.reason = "there is one worker"};  // its shard is the whole model
  ParallelismChoice choice{.sharding = std::move(sharding), .reason = "requested by --parallelism tensor"};
  return choice;
}

std::vector<StepPrediction> estimate_step_times(const Backend& backend, const Graph& graph, const Optimizer& optimizer,
                                                std::size_t batch, int world_size, double latency,
                                                double bytes_per_second) {
  const LinkModel link(latency, bytes_per_second, world_size);
  const auto predict = [&](std::optional<Sharding> sharding) {
    const std::size_t num_examples =
        sharding ? batch : max_examples_per_rank(batch, world_size, static_cast<std::size_t>(world_size));
    const Plan plan = plan_for(backend, graph, sharding, world_size, 0, num_examples);
    const std::vector<double> operations = measure_kernels(backend, plan, optimizer, num_examples, 1, world_size);
    const double compute = std::accumulate(operations.begin(), operations.end(), 0.0);
    return StepPrediction{world_size, std::move(sharding), compute,
                          std::max(0.0, simulate_step(plan, operations, link) - compute)};
  };
  std::vector<StepPrediction> predictions{predict(std::nullopt)};
  if (world_size == 1) return predictions;
  for (Sharding& sharding : candidate_shardings(graph, world_size, batch, link.hardware_model(world_size))) {
    StepPrediction next = predict(std::move(sharding));
    StepPrediction& last = predictions.back();
    const bool alike = last.sharding && last.sharding->is_any_sharded() == next.sharding->is_any_sharded();
    if (!alike) {
      predictions.push_back(std::move(next));
    } else if (next.seconds() < last.seconds()) {
      last = std::move(next);
    }
  }
  return predictions;
}

}  // namespace lockstep
