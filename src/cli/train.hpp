// `lockstep train`: trains a saved Keras model (.keras, .h5, .json) on every worker.
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
  int validation_freq = 1;            ///< in epochs
  int train_steps = 0;                ///< optimizer steps instead of epochs; 0: as many as the epochs have
  std::string save_as;                ///< file name in the model directory; empty: see output_path()
  std::optional<int> early_stopping;  ///< patience in epochs
  std::optional<double> early_stopping_min_delta;
  std::filesystem::path csv_log;
  std::filesystem::path tensorboard_dir;
};

/// The options that only `lockstep train` has. `settings` must outlive them.
[[nodiscard]] std::vector<ProgramOption> train_options(TrainSettings& settings);

/// Where the trained model is saved. The default is model.keras for a .keras input, otherwise model.h5.
[[nodiscard]] std::filesystem::path output_path(const TrainSettings& settings, const Options& options);

/// `args` are those after the command. Throws Error, which ends all workers.
void train(std::span<const std::string> args);

}  // namespace lockstep
