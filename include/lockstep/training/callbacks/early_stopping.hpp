// Keras' EarlyStopping.
#pragma once

#include <lockstep/core/named_tensor.hpp>
#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/callbacks/monitor.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;
  int patience = 0;
  MonitorMode mode = MonitorMode::automatic;
  std::optional<double> baseline = {};
  bool restore_best_weights = false;
  int start_from_epoch = 0;
};

/// Stops training when the metric has not improved for `patience` epochs. As in Keras 3, the best weights are restored
/// whenever training ends, also after its last epoch.
class EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  void on_train_end(Model& model) override;
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(const CallbackState& state) override;

 private:
  EarlyStoppingOptions options_;
  Monitor monitor_;
  int wait_ = 0;
  std::vector<NamedTensor> best_weights_;
  int best_epoch_ = 0;
};

}  // namespace lockstep
