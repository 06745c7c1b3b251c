// history.json, and report.html with the same content for people, which the chief writes beside the model.
#pragma once

#include "checkpoint/model_data.hpp"
#include "report/history_json.hpp"
#include "session/run_context.hpp"

#include <lockstep/training/model.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Adds options, world, versions and generations. `model`: how the model is parallelized, the measurements behind that
/// choice, and its BatchNormalization replicas.
[[nodiscard]] RunReport complete_report(RunReport report, RunContext& run_context, const std::string& communication,
                                        const NamedValues& model);

/// Writes the report to `path`, and report.html beside it. Throws IoError, and what the guard throws.
void save_history(const std::filesystem::path& path, const RunReport& report, const WriteGuard& guard);

}  // namespace lockstep
