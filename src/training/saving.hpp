// What the chief writes: the model as Keras reads it, and the run's record beside it.
#pragma once

#include "checkpoint/saved_model.hpp"
#include "report/history_json.hpp"
#include "training/runtime.hpp"

#include <lockstep/training/model.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Completes the report with options, world and versions, and writes it. `division`: how the model is divided, and what
/// was measured to choose it.
void save_history(const std::filesystem::path& path, RunReport report, Runtime& runtime,
                  const std::string& communication, const Record& division);

/// Throws IoError, with the remedy, where the directory cannot be made or written to: at the start, not after hours.
void check_writable(const std::filesystem::path& directory);

}  // namespace lockstep
