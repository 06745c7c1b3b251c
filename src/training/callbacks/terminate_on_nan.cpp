// See terminate_on_nan.hpp.
#include <lockstep/training/callbacks/terminate_on_nan.hpp>
#include <lockstep/training/model.hpp>

#include <cmath>

namespace lockstep {

void TerminateOnNaN::on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& epoch_so_far) {
  if (std::isfinite(epoch_so_far.loss_sum)) return;
  model.print("Batch {}: Invalid loss, terminating training", batch);
  model.stop_training();
}

}  // namespace lockstep
