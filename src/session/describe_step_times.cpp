// See describe_step_times.hpp.
#include "session/describe_step_times.hpp"

#include "graph/lower.hpp"
#include "parallel/calibrate.hpp"
#include "parallel/sharding_table.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

namespace {

std::string describe(const StepPrediction& step, std::size_t batch) {
  return fmt::format("{:.2f} ms a step, {:.0f} examples/s: kernels {:.2f} ms, waiting for communication {:.2f} ms",
                     1000 * step.seconds(), static_cast<double>(batch) / step.seconds(), 1000 * step.compute,
                     1000 * step.communication);
}

}  // namespace

std::string describe_step_times(const RunContext& run_context, const Architecture& architecture,
                                const CompileOptions& compile_options, std::size_t batch,
                                const NetworkOptions& options) {
  const Options& run = run_context.options();
  const Graph graph = lower(architecture, compile_options.loss, run.precision == Precision::mixed_bfloat16,
                            run.input_scale, compile_options.metrics, compile_options.weighted_metrics);
  std::string text =
      fmt::format("Global batch {}; one worker per host, links of {:g} Gbit/s, {:g} us; kernels measured on {}\n",
                  batch, 8e-9 * options.bytes_per_second, 1e6 * options.latency, run_context.backend().describe());
  bool is_shardable = true;
  for (int workers = 1; workers <= options.max_workers; workers *= 2) {
    const std::vector<StepPrediction> steps =
        estimate_step_times(run_context.backend(), graph, compile_options.optimizer, batch, workers, options.latency,
                            options.bytes_per_second);
    if (workers == 1) {
      text += fmt::format("\n1 worker: {}\n", describe(steps.front(), batch));
      continue;
    }
    text += "\n";
    is_shardable = false;
    std::vector<double> seconds;
    for (const StepPrediction& step : steps) {
      const std::string name = parallelism_name(step.sharding);
      is_shardable = is_shardable || name == "tensor";
      text += fmt::format("{} workers, {}{}: {}\n", workers, name, name == "replicated" ? "" : " parallel",
                          describe(step, batch));
      seconds.push_back(step.seconds());
    }
    const StepPrediction& best = steps[best_candidate(seconds)];
    const std::string name = parallelism_name(best.sharding);
    text += "--parallelism auto chooses " + name + ":\n";
    text += to_text(layer_shardings(graph, best.sharding, workers, batch));
  }
  if (!is_shardable) text += "\nTensor parallelism is not possible, because " + why_not_tensor_parallel(graph) + ".\n";
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace lockstep
