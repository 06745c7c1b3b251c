// See custom_loop.hpp.
#include "session/epoch_batches.hpp"
#include "training/model_parts.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/custom_loop.hpp>

#include <algorithm>
#include <memory>

namespace lockstep {

namespace {

/// Unshuffled batches are for evaluation, which is always one whole pass and ignores --steps-per-epoch.
EpochBatches batches_of(const Options& run, const Dataset& data, std::size_t batch_size, bool shuffle) {
  return {data, batch_size, shuffle ? run.steps_per_epoch : 0, shuffle};
}

}  // namespace

EpochRange::EpochRange(ModelParts& parts, int epochs)
    : parts_(&parts),
      epochs_(epochs),
      is_backed_up_(parts.loop_backups && parts.run_context->options().backup_save_freq != BackupOptions::never) {
  parts.is_in_epoch_loop = true;
  parts.run_context->begin_training_loop();
  if (is_backed_up_) parts.run_context->begin_backed_up_loop();
}

EpochRange::~EpochRange() {
  parts_->run_context->end_training_loop();
  parts_->is_in_epoch_loop = false;
  if (is_backed_up_) parts_->run_context->end_backed_up_loop();
}

int EpochRange::Iterator::operator*() const { return range_->parts_->session.position().epoch; }

EpochRange::Iterator& EpochRange::Iterator::operator++() {
  ModelParts& parts = *range_->parts_;
  parts.session.finish_steps();
  parts.session.set_position({parts.session.position().epoch + 1, 0});
  parts.batches_in_epoch = 0;
  if (parts.loop_backups) parts.loop_backups->after_epoch();
  return *this;
}

bool EpochRange::Iterator::operator==(std::default_sentinel_t /*end*/) const {
  ModelParts& parts = *range_->parts_;
  if (parts.session.position().epoch < range_->epochs_) return false;
  if (parts.loop_backups) parts.loop_backups->finish();
  return true;
}

BatchRange::BatchRange(ModelParts& parts, const Dataset& data, const BatchOptions& options)
    : parts_(&parts),
      data_(&data),
      batch_size_(parts.run_context->batch_size(options.batch_size)),
      shuffle_(options.shuffle),
      begin_(parts.batches_in_epoch) {
  const EpochBatches batches = batches_of(parts.run_context->options(), data, batch_size_, shuffle_);
  end_ = parts.batches_in_epoch = begin_ + static_cast<std::int64_t>(batches.size());
}

bool BatchRange::has_tickets() const { return shuffle_ && parts_->model.compiled().ticketed != nullptr; }

Batch BatchRange::batch_at(std::int64_t step) const {
  return batches_of(parts_->run_context->options(), *data_, batch_size_, shuffle_)
      .at(parts_->session.position().epoch, static_cast<std::uint64_t>(step - begin_));
}

BatchRange::Iterator::Iterator(const BatchRange& range)
    : range_(&range), iteration_(range.parts_->session.iterations()) {
  ModelParts& parts = *range.parts_;
  const auto [epoch, step] = parts.session.position();
  parts.session.set_position({epoch, std::max(step, range.begin_)});
  if (!range.has_tickets()) return;
  parts.rounds =
      std::make_unique<TrainingRounds>(parts.session, parts.loop_backups.get(), static_cast<std::uint64_t>(range.end_),
                                       batches_of(parts.run_context->options(), *range.data_, range.batch_size_, true));
  take_ticket();
}

void BatchRange::Iterator::take_ticket() {
  ModelParts& parts = *range_->parts_;
  do {
    parts.ticket = parts.rounds->next_ticket();
  } while (parts.ticket &&
           !parts.session.has_work(range_->batch_at(static_cast<std::int64_t>(parts.ticket->step)), *parts.ticket));
  parts.is_ticket_used = false;
}

Batch BatchRange::Iterator::operator*() const {
  const ModelParts& parts = *range_->parts_;
  return range_->batch_at(range_->has_tickets() ? static_cast<std::int64_t>(parts.ticket->step)
                                                : parts.session.position().step);
}

BatchRange::Iterator& BatchRange::Iterator::operator++() {
  ModelParts& parts = *range_->parts_;
  if (range_->has_tickets()) {
    if (!parts.is_ticket_used) {
      throw UsageError(
          "train_step() was not called for a batch that parameter servers wait for; call it once for each batch of "
          "batches()");
    }
    take_ticket();
    return *this;
  }
  const auto [epoch, step] = parts.session.position();
  parts.session.set_position({epoch, step + 1});
  const std::uint64_t before = iteration_;
  iteration_ = parts.session.iterations();
  if (iteration_ == before) return *this;  // an evaluation batch: nothing to back up
  if (parts.loop_backups) {
    const bool is_due = parts.loop_backups->is_due_after(parts.session.steps_made());
    if (is_due || parts.session.request() == StopRequest::after_this_step) parts.session.finish_steps();
    parts.loop_backups->after_step();
  } else {
    parts.session.leave_if_requested();
  }
  return *this;
}

bool BatchRange::Iterator::operator==(std::default_sentinel_t /*end*/) const {
  ModelParts& parts = *range_->parts_;
  const bool is_end = range_->has_tickets() ? !parts.ticket : parts.session.position().step >= range_->end_;
  if (is_end) {
    parts.session.finish_steps();
    parts.run_context->report_busy();
  }
  return is_end;
}

}  // namespace lockstep
