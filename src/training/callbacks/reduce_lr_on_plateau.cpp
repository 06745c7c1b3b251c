// See reduce_lr_on_plateau.hpp.
#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/reduce_lr_on_plateau.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/core.h>
#include <algorithm>
#include <utility>

namespace lockstep {

ReduceLROnPlateau::ReduceLROnPlateau(ReduceLROnPlateauOptions options)
    : options_(std::move(options)), monitor_(options_.monitor, options_.mode, options_.min_delta) {
  if (options_.factor <= 0 || options_.factor >= 1) {
    throw UsageError(fmt::format("ReduceLROnPlateau's factor is {:.10g} but must be between 0 and 1", options_.factor));
  }
}

void ReduceLROnPlateau::on_train_begin(Model& model) {
  wait_ = 0;
  cooldown_left_ = 0;
  monitor_.begin(model);
}

void ReduceLROnPlateau::on_epoch_end(Model& model, int epoch, Logs& logs) {
  const double rate = model.learning_rate();
  logs["learning_rate"] = rate;
  const std::optional<double> value = monitor_.value(logs);
  if (!value) return;
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    wait_ = 0;
  }
  if (monitor_.update(*value)) {
    wait_ = 0;
    return;
  }
  if (cooldown_left_ > 0 || ++wait_ < options_.patience || rate <= options_.min_lr) return;
  const double reduced = std::max(rate * options_.factor, options_.min_lr);
  model.set_learning_rate(reduced);
  model.print("Epoch {}: ReduceLROnPlateau reducing learning rate to {:.10g}.", epoch + 1, reduced);
  cooldown_left_ = options_.cooldown;
  wait_ = 0;
}

std::string ReduceLROnPlateau::settings() const {
  return fmt::format("monitor={}, factor={}, patience={}, mode={}, min_delta={}, cooldown={}, min_lr={}",
                     options_.monitor, options_.factor, options_.patience, to_string(options_.mode), options_.min_delta,
                     options_.cooldown, options_.min_lr);
}

CallbackState ReduceLROnPlateau::save_state() const {
  return {{{"wait", wait_}, {"best", monitor_.best()}, {"cooldown_left", cooldown_left_}}, {}, {}};
}

void ReduceLROnPlateau::restore_state(const CallbackState& state) {
  wait_ = static_cast<int>(state.number("wait", wait_));
  monitor_.set_best(state.number("best", monitor_.best()));
  cooldown_left_ = static_cast<int>(state.number("cooldown_left", cooldown_left_));
}

}  // namespace lockstep
