// See describe_steps.hpp.
#include "training/describe_steps.hpp"

#include "plan/division_table.hpp"
#include "plan/lower.hpp"
#include "training/choose_division.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace lockstep {

namespace {

std::string in_milliseconds(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f ms", 1000 * seconds);
  return text.data();
}

std::string describe(const StepPrediction& step, std::size_t batch) {
  std::array<char, 64> speed{};
  std::snprintf(speed.data(), speed.size(), "%.0f examples/s", static_cast<double>(batch) / step.seconds());
  return in_milliseconds(step.seconds()) + " a step, " + speed.data() + ": kernels " + in_milliseconds(step.compute) +
         ", waiting for sums " + in_milliseconds(step.communication);
}

}  // namespace

std::string describe_steps(const Runtime& runtime, const Sequential& architecture, const CompileOptions& compilation,
                           const PredictionOptions& options) {
  const Options& run = runtime.options();
  const auto batch = static_cast<std::size_t>(run.global_batch_size);
  const Graph graph =
      lower(architecture, compilation.loss, run.precision == Precision::mixed_bfloat16, run.input_scale);
  std::array<char, 160> links{};
  std::snprintf(links.data(), links.size(), "%g Gbit/s, %g us", 8e-9 * options.bytes_per_second, 1e6 * options.latency);
  std::string text = "Global batch " + std::to_string(batch) + "; workers on hosts of their own, links of " +
                     links.data() + "; kernels measured on " + runtime.backend().describe() + "\n";
  bool divisible = true;
  for (int workers = 1; workers <= options.most_workers; workers *= 2) {
    const std::vector<StepPrediction> steps = predict_steps(runtime.backend(), graph, compilation.optimizer, batch,
                                                            workers, options.latency, options.bytes_per_second);
    if (workers == 1) {
      text += "\n1 worker: " + describe(steps.front(), batch) + "\n";
      continue;
    }
    text += "\n";
    divisible = false;
    std::vector<double> seconds;
    for (const StepPrediction& step : steps) {
      const std::string name = name_of(step.division);
      divisible = divisible || name == "features";
      text += std::to_string(workers) + " workers, " + (name == "none" ? "each computing all" : "by " + name) + ": " +
              describe(step, batch) + "\n";
      seconds.push_back(step.seconds());
    }
    const StepPrediction& best = steps[best_of(seconds)];
    const std::string name = name_of(best.division);
    text += "--division auto " + (name == "none" ? "divides nothing" : "takes " + name) + ":\n";
    text += to_text(layer_divisions(graph, best.division, workers, batch));
  }
  if (!divisible) text += "\nBy features is not possible, since " + why_not_by_features(graph) + ".\n";
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace lockstep
