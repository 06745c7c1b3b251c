// See training_rounds.hpp.
#include "session/training_rounds.hpp"

#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

std::vector<double> numbers_of(const GradientCounts& counts) {
  std::vector<double> numbers(counts.by_staleness.begin(), counts.by_staleness.end());
  numbers.push_back(static_cast<double>(counts.total_staleness));
  numbers.push_back(static_cast<double>(counts.dropped));
  return numbers;
}

GradientCounts counts_of(std::span<const double> numbers) {
  GradientCounts counts;
  const auto whole = [](double number) { return static_cast<std::uint64_t>(number); };
  std::ranges::transform(numbers.first(counts.by_staleness.size()), counts.by_staleness.begin(), whole);
  counts.total_staleness = whole(numbers[numbers.size() - 2]);
  counts.dropped = whole(numbers.back());
  return counts;
}

}  // namespace

TrainingRounds::TrainingRounds(TrainingSession& session, BackupManager* backups, std::uint64_t end,
                               const EpochBatches& batches)
    : session_(session), worker_(*session.model().compiled().ticketed), backups_(backups), end_(end) {
  const auto workers = static_cast<std::size_t>(worker_.size());
  if (worker_.policy().is_asynchronous || batches.smallest() >= workers) return;
  throw UsageError(
      fmt::format("--replicas-to-aggregate needs examples for each of the {} workers in every batch, but one has {}; "
                  "choose another --global-batch-size, or --steps-per-epoch, with which all batches are full",
                  workers, batches.smallest()));
}

std::optional<Ticket> TrainingRounds::next_ticket() {
  while (true) {
    const double begin = monotonic_seconds();
    if (!worker_.is_in_round()) {
      if (session_.stop_training() || session_.position().step >= static_cast<std::int64_t>(end_)) return std::nullopt;
      begin_round();
    }
    if (wants_to_stop() && !std::exchange(is_closed_, true)) worker_.close_round();
    const std::optional<Ticket> ticket = worker_.next_ticket(has_counted_ ? counted() : std::vector<double>());
    inherit(worker_.take_inherited());
    session_.log().add_step_seconds(monotonic_seconds() - begin);
    if (ticket && !worker_.trains()) session_.report_step_of_others(*ticket);
    if (ticket) return ticket;
    end_round();
  }
}

void TrainingRounds::begin_round() {
  const auto begin = static_cast<std::uint64_t>(session_.position().step);
  round_ = {begin, session_.steps_made()};
  std::uint64_t end = begin + 1;
  const auto is_backup_due = [&] { return backups_ != nullptr && backups_->is_due_after(round_.number + end - begin); };
  while (end < end_ && !is_backup_due()) ++end;
  before_ = session_.log().epoch_so_far().metrics;
  metrics_ = {};
  has_counted_ = false;
  inherited_gradients_.clear();
  gradients_before_ = session_.gradients();
  is_closed_ = false;
  worker_.begin_round({begin, end}, session_.iterations(), round_.number);
}

std::vector<double> TrainingRounds::counted() const {
  std::vector<double> numbers{metrics_.loss_sum, metrics_.num_examples};
  numbers.insert(numbers.end(), metrics_.sums.begin(), metrics_.sums.end());
  numbers.resize(2 + session_.model().compiled().metrics->num_sums());
  std::vector<double> gradients = numbers_of(session_.gradients());
  std::ranges::transform(gradients, numbers_of(gradients_before_), gradients.begin(), std::minus<>());
  for (std::size_t i = 0; i < inherited_gradients_.size(); ++i) gradients[i] += inherited_gradients_[i];
  numbers.insert(numbers.end(), gradients.begin(), gradients.end());
  return numbers;
}

void TrainingRounds::inherit(std::span<const double> counted) {
  const std::size_t sums = session_.model().compiled().metrics->num_sums();
  if (counted.size() != 2 + sums + numbers_of({}).size()) return;  // nothing, of a worker that was not lost
  metrics_ = {counted[0], counted[1], {counted.begin() + 2, counted.begin() + 2 + static_cast<std::ptrdiff_t>(sums)}};
  inherited_gradients_.assign(counted.begin() + 2 + static_cast<std::ptrdiff_t>(sums), counted.end());
  has_counted_ = true;
}

bool TrainingRounds::wants_to_stop() const {
  return session_.stop_training() || !std::isfinite(metrics_.loss_sum) ||
         session_.run_context().stop_request() == StopRequest::after_this_step;
}

void TrainingRounds::end_round() {
  const int epoch = session_.position().epoch;
  const std::uint64_t end = agree(worker_.end_round());
  session_.set_position({epoch, static_cast<std::int64_t>(end)});
  session_.set_steps_made(round_.number + end - round_.begin);
  if (!session_.stop_training())
    session_.check_loss(session_.log().epoch_so_far().metrics, fmt::format("epoch {}, step {}", epoch + 1, end));
  if (backups_ != nullptr) {
    backups_->after_step();
  } else {
    session_.leave_if_requested();
  }
}

std::uint64_t TrainingRounds::agree(std::uint64_t end) {
  const std::size_t num_sums = session_.model().compiled().metrics->num_sums();
  const std::size_t num_metrics = 2 + num_sums;
  const std::vector<double> counted = this->counted();
  const std::span<const double> own = std::span(counted).subspan(num_metrics);
  std::vector<double> all(counted.begin(), counted.begin() + static_cast<std::ptrdiff_t>(num_metrics));
  const std::size_t first_wish = all.size();
  const StopRequest request = session_.run_context().stop_request();
  for (const bool wants :
       {session_.stop_training(), request == StopRequest::after_next_backup, request == StopRequest::after_this_step})
    all.push_back(wants ? 1 : 0);
  // The chief's numbers, because a worker that replays the round does not know them.
  const std::size_t first_of_chief = all.size();
  const bool is_chief = worker_.rank() == 0;
  for (const std::uint64_t number : {worker_.weights_iteration(), end})
    all.push_back(is_chief ? static_cast<double>(number) : 0);
  const std::size_t first_count = all.size();
  const auto workers = static_cast<std::size_t>(worker_.size());
  all.resize(first_count + workers * own.size());
  std::ranges::copy(own, std::span(all).subspan(first_count + own.size() * worker_.rank()).begin());
  worker_.all_reduce_sum(all);

  const std::span<const double> sums = all;
  MetricSums metrics{sums[0], sums[1], {sums.begin() + 2, sums.begin() + 2 + static_cast<std::ptrdiff_t>(num_sums)}};
  metrics += before_;
  std::vector<GradientCounts> gradients;
  for (std::size_t worker = 0; worker < workers; ++worker)
    gradients.push_back(counts_of(sums.subspan(first_count + worker * own.size(), own.size())));
  session_.log().end_round(metrics, gradients);
  if (sums[first_wish] > 0) session_.set_stop_training(true);
  if (sums[first_wish + 1] > 0) session_.add_request(StopRequest::after_next_backup);
  if (sums[first_wish + 2] > 0) session_.add_request(StopRequest::after_this_step);
  session_.model().compiled().iteration = static_cast<std::uint64_t>(sums[first_of_chief]);
  return static_cast<std::uint64_t>(sums[first_of_chief + 1]);
}

}  // namespace lockstep
