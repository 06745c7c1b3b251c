// `lockstep inspect --json`, for scripts.
#pragma once

#include "cli/history_summary.hpp"
#include "cli/inspected_file.hpp"

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

/// {"path", "bytes", "model", "training", "weights": [...], "optimizer_state": [...], "problem"}: "problem" is null or
/// what is wrong with the values.
[[nodiscard]] nlohmann::ordered_json to_json(const InspectedFile& file);

[[nodiscard]] nlohmann::ordered_json to_json(const HistorySummary& summary);

}  // namespace lockstep
