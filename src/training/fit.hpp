// The loop of Model::fit: epochs of steps, validation, callbacks, and what the chief shows of it.
#pragma once

#include "report/progress_bar.hpp"
#include "training/model_state.hpp"

#include <lockstep/training/model.hpp>

#include <cstdint>

namespace lockstep {

class FitLoop {
 public:
  /// All must outlive the loop. `validation` may be null.
  FitLoop(Model& model, ModelState& state, const Dataset& data, const Dataset* validation, const FitOptions& options);

  /// Throws DataError where the loss is no number and no callback stops for it.
  void run();

 private:
  void run_epoch(int epoch);
  [[nodiscard]] Batch batch_of(int epoch, std::uint64_t step) const;

  /// Takes the metrics of the oldest step under way: number `step` of the epoch.
  void finish_step(int epoch, std::uint64_t step, StepMetrics& epoch_so_far);

  template <typename Call>
  void for_each_callback(const Call& call) const {
    for (const AnyCallback& callback : options_.callbacks) call(callback.get());
  }

  Model& model_;
  ModelState& state_;
  const Dataset& data_;
  const Dataset* validation_;
  const FitOptions& options_;
  std::uint64_t global_batch_;
  std::uint64_t steps_;  ///< of an epoch
  ProgressBar bar_;
};

}  // namespace lockstep
