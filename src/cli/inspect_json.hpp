// `lockstep inspect --json`, for scripts.
#pragma once

#include "cli/history_summary.hpp"
#include "cli/inspected_file.hpp"

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

/// {"path", "bytes", "model", "training", "backup", "weights": [...], "optimizer_state": [...], "problem"}. "problem"
/// is null, or says which values are NaN or infinite.
[[nodiscard]] nlohmann::ordered_json to_json(const InspectedFile& file);

[[nodiscard]] nlohmann::ordered_json to_json(const HistorySummary& summary);

}  // namespace lockstep
