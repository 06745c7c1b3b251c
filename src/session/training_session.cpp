// See training_session.hpp.
#include "session/training_session.hpp"

#include "checkpoint/model_data.hpp"
#include "core/clock.hpp"
#include "core/fault_point.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

/// Without branches, so that it runs as fast as memory is read.
bool are_finite(std::span<const float> values) {
  constexpr std::uint32_t exponent = 0x7F800000;
  std::uint32_t highest = 0;
  for (const float value : values) highest = std::max(highest, std::bit_cast<std::uint32_t>(value) & exponent);
  return highest != exponent;
}

}  // namespace

void TrainingSession::check_loss(const MetricSums& metrics, const std::string& where) const {
  if (std::isfinite(metrics.loss_sum)) return;
  const char* value = std::isnan(metrics.loss_sum) ? "NaN" : "infinite";
  const std::string problem = fmt::format("the loss became {} in {}", value, where);
  const std::uint64_t finished = iterations() - in_flight_;
  if (finished > 1) fail_nonfinite({problem, finished});
  fail_nonfinite({problem, finished,
                  "no weight had been updated yet, so an output of the model is NaN, infinite, or outside of what the "
                  "loss is defined for"});
}

void TrainingSession::check_weights(const std::string& where) const {
  CompiledModel& model = model_.compiled();
  model.synchronize();
  bool is_finite = true;
  if (run_context().backend().device_streams() == nullptr) {
    // A metric may be NaN, and the optimizer steps along its sums as if they were gradients.
    const Graph& graph = model.plan().graph;
    const ParameterSpec& metrics = graph.parameters[static_cast<std::size_t>(graph.metrics_parameter())];
    const std::span<const float> weights = model.arenas.weights;
    is_finite = model.sharding ? are_finite(model.local.weights)
                               : are_finite(weights.first(metrics.offset)) &&
                                     are_finite(weights.subspan(metrics.offset + metrics.storage));
  } else {  // the arenas are in the device's memory
    model.visit_weights([&](std::span<const float> weights) { is_finite = is_finite && are_finite(weights); });
  }
  const std::vector<std::string> all = run_context().control().all_gather(is_finite ? "" : "not finite");
  if (std::ranges::all_of(all, &std::string::empty)) return;
  const auto problem = find_nonfinite(model_.weights());
  fail_nonfinite({fmt::format("{} after {}", problem.value_or("a weight is NaN or infinite"), where), iterations()});
}

void TrainingSession::fail_nonfinite(const NonfiniteError& error) const {
  if (!record_nonfinite_) throw NonfiniteError(error);
  if (nonfinite_step_ == error.step()) {
    throw NonfiniteError(error.problem() + ", again at the same step after a restart, so no machine made an error",
                         error.step());
  }
  record_nonfinite_(error.step());
  throw PeerError(error.problem() + "; training restarts once from the last backup, in case a machine made an error");
}

std::uint64_t TrainingSession::updates_per_step() const {
  const WorkerCommunicator* ticketed = model_.compiled().ticketed;
  return ticketed == nullptr ? 1 : ticketed->updates_per_step();
}

std::uint64_t TrainingSession::steps_made() const { return std::max(steps_made_, iterations() / updates_per_step()); }

bool TrainingSession::has_work(const Batch& batch, const Ticket& ticket) const {
  const CompiledModel& model = model_.compiled();
  return !model.ticketed->policy().is_asynchronous || model.feed->has_examples(batch, ticket.slice);
}

void TrainingSession::report_step_of_others(const Ticket& ticket) {
  if (steps_++ == 0) log_.end_first_step();
  ProgressReporter& progress = run_context().launcher().progress();
  progress.report_step_begin();
  progress.report_step_end({.step = (ticket.number + 1) * updates_per_step(),
                            .epoch = static_cast<std::uint64_t>(position_.epoch),
                            .loss = log_.epoch_so_far().metrics.loss()});
}

void TrainingSession::start_step(const Batch& batch, const Ticket* ticket) {
  const double begin = monotonic_seconds();
  // The metrics of steps in flight are in the executable of their batch size.
  if (in_flight_ > 0 && model_.compiled().batch_size_of(batch) != model_.compiled().training->batch_size)
    finish_steps();
  if (model_.prepare_to_train(batch)) is_first_step_ = true;
  run_context().launcher().progress().report_step_begin();
  CompiledModel& model = model_.compiled();
  fault_point("step", std::as_writable_bytes(model.sharding ? model.local.weights : model.arenas.weights));
  if (run_context().writer().is_gathering()) fault_point("gather");
  Step& step = model.training->step;
  if (in_flight_ == 0) {
    written_metrics_.resize(max_in_flight());
    for (std::vector<float>& written : written_metrics_) written.resize(model.num_metric_elements());
  }
  model.communicator->schedule_gather_slice();
  if (ticket != nullptr) model.iteration = ticket->iteration - 1;
  StepContext context =
      ticket == nullptr
          ? model.feed->prepare(batch, model.iteration, true)
          : model.feed->prepare_slice(batch, ticket->slice, model.ticketed->policy().gradients, ticket->number);
  context.request = run_context().stop_request();
  ++steps_;
  if (!step.reduces_metrics(++model.iteration)) context.metric_examples = {0, context.examples.size()};
  const LearningRate& learning_rate = learning_rate_of(model.options.optimizer);
  model.communicator->begin_step(
      {model.iteration, learning_rate.is_constant() ? std::optional(learning_rate.at(model.iteration)) : std::nullopt});
  step.train(context, model.options.optimizer, model.iteration);
  ++in_flight_;
  log_.add_step_seconds(monotonic_seconds() - begin);
}

const MetricSums& TrainingSession::finish_step() {
  const double begin = monotonic_seconds();
  CompiledModel& model = model_.compiled();
  if (model.ticketed == nullptr) {
    take_metrics(1);
    --taken_;
    --in_flight_;
    read_metrics();
  } else {
    --in_flight_;
    read_metrics_of_ticket();
  }
  log_.add(last_step_);
  log_.add_step_seconds(monotonic_seconds() - begin);
  if (std::exchange(is_first_step_, false)) {
    log_.end_first_step();
    model.training->step.reset_profile();
  }
  record_event({"step", model.iteration - in_flight_, std::bit_cast<std::uint64_t>(last_step_.loss_sum)});
  report_step();
  run_context().writer().poll();
  return last_step_;
}

void TrainingSession::finish_steps(std::size_t max_in_flight) {
  while (in_flight_ > max_in_flight) {
    const MetricSums& metrics = finish_step();
    check_loss(metrics, fmt::format("step {}", iterations() - in_flight_));
  }
}

const MetricSums& TrainingSession::read_last_step() {
  if (in_flight_ == 0) return last_step_;
  take_metrics(in_flight_);
  const CompiledModel& model = model_.compiled();
  model.metrics->read(written_metrics(model.iteration), read_early_);
  return read_early_;
}

void TrainingSession::take_metrics(std::size_t steps) {
  for (; taken_ < steps; ++taken_) {
    const CompiledModel& model = model_.compiled();
    Executable& executable = *model.training->executable;
    const std::uint64_t iteration = model.iteration - in_flight_ + taken_ + 1;
    const std::span<float> written = written_metrics(iteration);
    if (model.training->step.reduces_metrics(iteration)) {
      executable.take_metrics(written);
    } else {
      executable.take_local_metrics(written);
      // Not yet reduced over the ranks.
      written[metric_stop_after_this_step] = written[metric_stop_after_next_backup] = 0;
    }
  }
}

void TrainingSession::read_metrics() {
  const CompiledModel& model = model_.compiled();
  const std::span<const float> written = written_metrics(model.iteration - in_flight_);
  if (written[metric_stop_after_next_backup] > 0) request_ = std::max(request_, StopRequest::after_next_backup);
  if (written[metric_stop_after_this_step] > 0) request_ = StopRequest::after_this_step;
  model.metrics->read(written, last_step_);
}

void TrainingSession::read_metrics_of_ticket() {
  const CompiledModel& model = model_.compiled();
  const std::span<float> written = written_metrics(model.iteration);
  const GradientResult result = model.ticketed->wait_result();
  if (result.is_dropped) {
    ++gradients_.dropped;
    std::ranges::fill(written, 0.0F);
  } else {
    gradients_.add_applied(result.staleness);
    model.training->executable->take_local_metrics(written);
  }
  model.metrics->read(written, last_step_);
}

void TrainingSession::report_step() {
  const CompiledModel& model = model_.compiled();
  const StepProfile& profile = model.training->step.profile();
  run_context().launcher().progress().report_step_end({.step = model.iteration - in_flight_,
                                                       .epoch = static_cast<std::uint64_t>(position_.epoch),
                                                       .loss = log_.epoch_so_far().metrics.loss(),
                                                       .examples = last_step_.num_examples,
                                                       .allreduce_seconds = profile.communication,
                                                       .wait_seconds = profile.waiting,
                                                       .gradients = gradients_});
}

void TrainingSession::leave_if_requested() {
  if (request_ == StopRequest::after_this_step) {
    finish_steps();
    run_context().leave(run_context().describe_stop() +
                        "; without backups, the same command trains from the beginning.");
  }
}

Logs TrainingSession::to_logs(const MetricSums& metrics) const {
  Logs logs;
  visit_values(metrics, [&](std::string_view name, double value) { logs.emplace(name, value); });
  return logs;
}

void TrainingSession::warn_of_busy_cores() {
  constexpr double min_seconds = 4;  // of all threads: shorter pauses may be anything
  constexpr double high_share = 0.4;
  if (warned_of_busy_cores_) return;
  const CoreTimes now = read_core_times();
  const double share = waiting_share(core_times_, now);
  if (share < high_share || now.total() - core_times_.total() < min_seconds) return;
  warned_of_busy_cores_ = true;
  log_warning(
      fmt::format("this worker's threads waited {:.0f} % of their time for cores that others used; leave cores "
                  "free, start fewer workers, or give each fewer threads (OMP_NUM_THREADS)",
                  100 * share));
}

const EpochRecord& TrainingSession::end_epoch(int epoch, const Logs& more) {
  warn_of_busy_cores();
  Logs logs = to_logs(log_.epoch_so_far().metrics);
  logs.insert(more.begin(), more.end());
  return log_.end_epoch(epoch, std::move(logs));
}

RunReport TrainingSession::report() const {
  const CompiledModel& model = model_.compiled();
  RunReport report;
  report.history = log_.history();
  report.evaluation = evaluation_;
  report.mistakes = mistakes_;
  report.timing.seconds_to_first_step = log_.seconds_to_first_step();
  report.timing.steps = steps_;
  report.timing.backups = log_.backups();
  report.timing.skipped_backups = log_.skipped_backups();
  report.timing.ms_per_backup = 1000 * log_.seconds_per_backup();
  if (model.training == nullptr) return report;
  const StepProfile& profile = model.training->step.profile();
  if (profile.steps > 0) {
    std::map<std::string, double>& kinds = report.timing.profile_ms_per_step;
    kinds = profile.by_kind(model.training->plan);
    const double attributed = std::accumulate(kinds.begin(), kinds.end(), 0.0,
                                              [](double sum, const auto& kind) { return sum + kind.second; });
    const double total = log_.step_seconds() * 1000.0 / static_cast<double>(profile.steps);
    kinds["other"] = total - attributed;
    kinds["total"] = total;
    report.timing.operations_ms_per_step = profile.by_operation(model.training->plan);
  }
  return report;
}

}  // namespace lockstep
