// Keras' LearningRateScheduler.
#pragma once

#include <lockstep/training/callbacks/callback.hpp>

#include <functional>
#include <utility>

namespace lockstep {

/// Sets the learning rate to schedule(epoch, learning rate) before each epoch. Logs learning_rate.
class LearningRateScheduler : public Callback {
 public:
  using Schedule = std::function<double(int epoch, double learning_rate)>;
  explicit LearningRateScheduler(Schedule schedule) : schedule_(std::move(schedule)) {}
  void on_epoch_begin(Model& model, int epoch) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;

 private:
  Schedule schedule_;
};

}  // namespace lockstep
