// See early_stopping.hpp.
#include <lockstep/training/callbacks/early_stopping.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/format.h>
#include <utility>

namespace lockstep {

EarlyStopping::EarlyStopping(EarlyStoppingOptions options)
    : options_(std::move(options)), monitor_(options_.monitor, options_.mode, options_.min_delta) {}

void EarlyStopping::on_train_begin(Model& model) {
  wait_ = 0;
  best_epoch_ = 0;
  best_weights_.clear();
  monitor_.begin(model);
}

void EarlyStopping::on_epoch_end(Model& model, int epoch, Logs& logs) {
  const std::optional<double> value = monitor_.value(logs);
  if (!value || epoch < options_.start_from_epoch) return;
  if (options_.restore_best_weights && best_weights_.empty()) best_weights_ = model.weights();
  ++wait_;
  if (monitor_.update(*value)) {
    best_epoch_ = epoch;
    if (options_.restore_best_weights) best_weights_ = model.weights();
    if (!options_.baseline || monitor_.improves(*value, *options_.baseline)) wait_ = 0;
    return;
  }
  if (wait_ < options_.patience || epoch == 0) return;
  model.stop_training();
  model.print("Epoch {}: early stopping", epoch + 1);
}

void EarlyStopping::on_train_end(Model& model) {
  if (best_weights_.empty()) return;
  model.print("Restoring model weights from the end of the best epoch: {}.", best_epoch_ + 1);
  model.set_weights(best_weights_);
}

std::string EarlyStopping::settings() const {
  return fmt::format(
      "monitor={}, min_delta={}, patience={}, mode={}, baseline={}, restore_best_weights={}, "
      "start_from_epoch={}",
      options_.monitor, options_.min_delta, options_.patience, to_string(options_.mode),
      options_.baseline ? fmt::format("{}", *options_.baseline) : "none", options_.restore_best_weights,
      options_.start_from_epoch);
}

CallbackState EarlyStopping::save_state() const {
  return {{{"wait", wait_}, {"best", monitor_.best()}, {"best_epoch", best_epoch_}}, {}, best_weights_};
}

void EarlyStopping::restore_state(const CallbackState& state) {
  wait_ = static_cast<int>(state.number("wait", wait_));
  monitor_.set_best(state.number("best", monitor_.best()));
  best_epoch_ = static_cast<int>(state.number("best_epoch", best_epoch_));
  best_weights_ = state.arrays;
}

}  // namespace lockstep
