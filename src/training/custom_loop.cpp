// See custom_loop.hpp.
#include "training/backups.hpp"
#include "training/epoch_batches.hpp"
#include "training/model_state.hpp"

#include <lockstep/training/custom_loop.hpp>

namespace lockstep {

namespace {

EpochBatches batches_of(ModelState& state, const Dataset& data, bool shuffle) {
  const Options& run = state.runtime().options();
  return {data, static_cast<std::uint64_t>(run.global_batch_size), run.steps_per_epoch, shuffle};
}

}  // namespace

int EpochRange::Iterator::operator*() const { return range_->state_->position().epoch; }

EpochRange::Iterator& EpochRange::Iterator::operator++() {
  ModelState& state = *range_->state_;
  state.set_position({state.position().epoch + 1, 0});
  if (Backups* backups = state.loop_backups()) backups->after_epoch();
  return *this;
}

bool EpochRange::Iterator::operator==(std::default_sentinel_t /*end*/) const {
  ModelState& state = *range_->state_;
  if (state.position().epoch < range_->epochs_) return false;
  if (Backups* backups = state.loop_backups()) backups->finish();
  return true;
}

Batch BatchRange::Iterator::operator*() const {
  const auto [epoch, step] = range_->state_->position();
  return batches_of(*range_->state_, *range_->data_, range_->shuffle_).at(epoch, static_cast<std::uint64_t>(step));
}

BatchRange::Iterator& BatchRange::Iterator::operator++() {
  ModelState& state = *range_->state_;
  const auto [epoch, step] = state.position();
  state.set_position({epoch, step + 1});
  if (Backups* backups = state.loop_backups()) {
    backups->after_step();
  } else {
    state.leave_if_asked();
  }
  return *this;
}

bool BatchRange::Iterator::operator==(std::default_sentinel_t /*end*/) const {
  const auto step = static_cast<std::uint64_t>(range_->state_->position().step);
  const bool is_end = step >= batches_of(*range_->state_, *range_->data_, range_->shuffle_).size();
  if (is_end) range_->state_->runtime().tell_busy();
  return is_end;
}

}  // namespace lockstep
