// Keras' TerminateOnNaN.
#pragma once

#include <lockstep/training/callbacks/callback.hpp>

#include <cstdint>

namespace lockstep {

/// Ends training at a batch whose loss is NaN or infinite. Without it, fit() throws DataError there.
class TerminateOnNaN : public Callback {
 public:
  void on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& epoch_so_far) override;
};

}  // namespace lockstep
