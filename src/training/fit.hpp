// The loop of Model::fit: epochs of steps, validation, callbacks, and what the chief shows of it.
#pragma once

#include "report/progress_bar.hpp"
#include "training/backups.hpp"
#include "training/epoch_batches.hpp"
#include "training/model_state.hpp"

#include <lockstep/training/model.hpp>

#include <cstdint>
#include <optional>

namespace lockstep {

class FitLoop {
 public:
  /// All must outlive the loop. `validation` may be null.
  FitLoop(Model& model, ModelState& state, const Dataset& data, const Dataset* validation, const FitOptions& options);

  /// Throws DataError where the loss is no number and no callback stops for it.
  void run();

 private:
  void run_epoch();
  void run_steps();
  /// Takes the metrics of the oldest step under way: the position's.
  void finish_step();

  template <typename Call>
  void for_each_callback(const Call& call) const {
    for (const AnyCallback& callback : options_.callbacks) call(callback.get());
  }

  Model& model_;
  ModelState& state_;
  const Dataset* validation_;
  const FitOptions& options_;
  EpochBatches batches_;
  ProgressBar bar_;
  std::optional<Backups> backups_;
};

}  // namespace lockstep
