// See describe_step_times.hpp.
#include "session/describe_step_times.hpp"

#include "core/format_number.hpp"
#include "graph/lower.hpp"
#include "parallel/calibrate.hpp"
#include "parallel/sharding_table.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace lockstep {

namespace {

constexpr const char* header = "workers  parallelism  ms a step  examples/s  kernels ms  waiting ms\n";

/// A line below `header`. One worker has no parallelism.
std::string row(int workers, const std::string& parallelism, const StepPrediction& step, std::size_t batch) {
  return fmt::format("{:>7}  {:11}  {:>9.2f}  {:>10}  {:>10.2f}  {:>10.2f}\n", workers, parallelism,
                     1000 * step.seconds(), with_commas(std::llround(static_cast<double>(batch) / step.seconds())),
                     1000 * step.compute, 1000 * step.communication);
}

}  // namespace

std::string describe_step_times(const RunContext& run_context, const Architecture& architecture,
                                const CompileOptions& compile_options, std::size_t batch,
                                const NetworkOptions& options) {
  const Options& run = run_context.options();
  const Graph graph = lower(architecture, compile_options, run.precision, run.input_scale);
  std::string table;
  std::string choices;
  bool is_shardable = true;
  for (int workers = 1; workers <= options.max_workers; workers *= 2) {
    const std::vector<StepPrediction> steps =
        estimate_step_times(run_context.backend(), graph, compile_options.optimizer, batch, workers, options.latency,
                            options.bytes_per_second);
    if (workers == 1) {
      table += row(workers, "", steps.front(), batch);
      continue;
    }
    is_shardable = false;
    std::vector<double> seconds;
    for (const StepPrediction& step : steps) {
      const std::string name = parallelism_name(step.sharding);
      is_shardable = is_shardable || name == "tensor";
      table += row(workers, name, step, batch);
      seconds.push_back(step.seconds());
    }
    const StepPrediction& best = steps[best_candidate(seconds)];
    choices +=
        fmt::format("\nWith {} workers, --parallelism auto chooses {}:\n{}", workers, parallelism_name(best.sharding),
                    to_text(layer_shardings(graph, best.sharding, workers, batch)));
  }
  std::string text =
      fmt::format("Global batch {}; one worker per host, links of {:g} Gbit/s, {:g} us\nKernels measured on {}\n\n",
                  batch, 8e-9 * options.bytes_per_second, 1e6 * options.latency, run_context.backend().describe());
  text += header + table + choices;
  if (!is_shardable) text += "\nTensor parallelism is not possible, because " + why_not_tensor_parallel(graph) + ".\n";
  text.pop_back();
  return text;
}

}  // namespace lockstep
