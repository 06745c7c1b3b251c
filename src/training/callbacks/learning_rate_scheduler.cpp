// See learning_rate_scheduler.hpp.
#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/learning_rate_scheduler.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/core.h>
#include <cmath>

namespace lockstep {

void LearningRateScheduler::on_epoch_begin(Model& model, int epoch) {
  const double rate = schedule_(epoch, model.learning_rate());
  if (!std::isfinite(rate) || rate < 0) {
    throw UsageError(
        fmt::format("the schedule of LearningRateScheduler gave {:.10g} for epoch {}; a learning rate is a "
                    "finite number of at least 0",
                    rate, epoch));
  }
  model.set_learning_rate(rate);
}

void LearningRateScheduler::on_epoch_end(Model& model, int /*epoch*/, Logs& logs) {
  logs["learning_rate"] = model.learning_rate();
}

}  // namespace lockstep
