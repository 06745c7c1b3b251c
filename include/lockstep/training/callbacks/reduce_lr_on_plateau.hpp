// Keras' ReduceLROnPlateau.
#pragma once

#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/callbacks/monitor.hpp>

#include <string>

namespace lockstep {

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;
  int patience = 10;
  MonitorMode mode = MonitorMode::automatic;
  double min_delta = 1e-4;
  int cooldown = 0;
  double min_lr = 0;
};

/// Multiplies the learning rate by `factor` when the metric has not improved for `patience` epochs. Logs learning_rate.
class ReduceLROnPlateau : public Callback {
 public:
  explicit ReduceLROnPlateau(ReduceLROnPlateauOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(const CallbackState& state) override;

 private:
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  int wait_ = 0;
  int cooldown_left_ = 0;
};

}  // namespace lockstep
