// See choose_division.hpp.
#include "training/choose_division.hpp"

#include "core/environment.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

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
Speeds speeds_of(Runtime& /*runtime*/) {
  Speeds speeds;
  const std::string text = value_of(current_environment(), "LOCKSTEP_TEST_LINK");
  if (text.empty()) return speeds;
  std::istringstream fields(text);
  char comma = 0;
  fields >> speeds.latency >> comma >> speeds.bytes_per_second >> comma >> speeds.flops_per_second;
  if (!fields) throw UsageError("LOCKSTEP_TEST_LINK is '" + text + "' but must be LATENCY,BYTES_PER_SECOND,FLOPS");
  return speeds;
}

}  // namespace

std::optional<FeatureDivision> choose_division(Runtime& runtime, const Graph& graph) {
  if (runtime.options().division != Division::features) return std::nullopt;
  const int ranks = runtime.world().size();
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  std::string forbidden = forbidden_by(runtime);
  const auto division = divide_by_features(graph, ranks, batch, speeds_of(runtime));
  if (forbidden.empty() && !division) forbidden = why_not_by_features(graph);
  if (!forbidden.empty()) {
    throw UsageError("--division features: the model cannot be divided by features, since " + forbidden +
                     "; use --division examples");
  }
  if (ranks == 1) return std::nullopt;  // one worker's part is the whole
  return division;
}

}  // namespace lockstep
