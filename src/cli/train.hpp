// `lockstep train`: trains a model that Keras or Lockstep described, on every worker, without a program of one's own.
#pragma once

#include "cli/model_settings.hpp"

#include <lockstep/training/options.hpp>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct TrainSettings {
  ModelSettings model;
  double validation_split = 0;
  std::string save_as;                ///< a name in the model directory; empty: as the input's form wants it
  std::optional<int> early_stopping;  ///< its patience, in epochs
  std::filesystem::path csv_log;
  std::filesystem::path tensorboard_dir;
};

/// The options of its own; `settings` must outlive them.
[[nodiscard]] std::vector<ProgramOption> train_options(TrainSettings& settings);

/// Throws UsageError for what no run can do.
void check_settings(const TrainSettings& settings, const std::string& program);

/// The file that the trained model becomes.
[[nodiscard]] std::filesystem::path output_of(const TrainSettings& settings, const Options& options);

/// `args` are those after the command. What goes wrong is thrown, to end all workers.
void train(std::span<const std::string> args);

}  // namespace lockstep
