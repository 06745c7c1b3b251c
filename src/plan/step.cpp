// See step.hpp.
#include "plan/step.hpp"

#include "collective/first_problem.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/overloaded.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <optional>
#include <string>
#include <variant>

namespace lockstep {

namespace {

/// Adds the time until the end of the scope to a sum, or the time that the device has measured for the work in it. A
/// step makes about a hundred such measurements of 40 ns each.
class Timed {
 public:
  explicit Timed(double& sum, const Executable* executable = nullptr)
      : sum_(sum), executable_(executable), begin_(monotonic_seconds()) {}
  ~Timed() {
    const std::optional<double> measured = executable_ == nullptr ? std::nullopt : executable_->measured_seconds();
    sum_ += measured.value_or(monotonic_seconds() - begin_);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  const Executable* executable_;
  double begin_;
};

}  // namespace

/// The executor that a Schedule runs one training step on.
class Step::TrainingRun {
 public:
  TrainingRun(Step& step, const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration)
      : plan_(step.plan_),
        executable_(step.executable_),
        communicator_(step.communicator_),
        local_gradients_(step.local_gradients_),
        norm_clipping_(step.norm_clipping_),
        profile_(step.profile_),
        context_(context),
        optimizer_(optimizer),
        iteration_(iteration),
        needs_norms_(clipping_of(optimizer).needs_norms()) {}

  void run(std::size_t place) {
    std::visit(Overloaded{[&](const Compute& compute) {
                            {
                              const Timed timed(profile_.seconds[place], &executable_);
                              executable_.run(compute.operation, context_);
                            }
                            communicate([&] { communicator_.make_progress(); });
                          },
                          [&](const MarkReady& ready) { communicate([&] { communicator_.mark_ready(ready.bucket); }); },
                          [&](const WaitUpdated& wait) { wait_updated(wait.bucket); },
                          [&](const StartAllToAll& start) {
                            communicate([&] { communicator_.start_all_to_all(start.all_to_all); });
                          },
                          [&](const FinishAllToAll& finish) {
                            communicate([&] { communicator_.finish_all_to_all(finish.all_to_all); });
                          },
                          [&](const UpdateLocal& update) { update_local(place, plan_.local_ranges[update.range]); },
                          [](const Update&) {}},  // the schedule calls `update`
               plan_.training[place]);
  }

  void update(std::size_t place, std::size_t bucket) {
    ReducedShard shard;
    communicate([&] { shard = communicator_.wait_reduced(bucket); });
    if (needs_norms_ && norm_clipping_.has_gradients(bucket)) {
      const Timed timed(profile_.seconds[place]);
      norm_clipping_.defer(place, shard, optimizer_, iteration_);
      return;
    }
    const Timed timed(profile_.seconds[place], &executable_);
    executable_.update(shard, optimizer_, iteration_);
    communicator_.mark_updated(bucket);
  }

  [[nodiscard]] bool is_reduced(std::size_t bucket) const { return communicator_.is_reduced(bucket); }

  void wait_updated(std::size_t bucket) {
    communicate([&] { communicator_.wait_updated(bucket); });
  }

  /// Runs the updates that were deferred until the norms of all gradients are known.
  void finish_clipping() {
    if (!needs_norms_) return;
    communicate([&] { norm_clipping_.all_reduce_norms(clipping_of(optimizer_)); });
    for (const auto& [place, shard] : norm_clipping_.deferred_updates()) {
      const Timed timed(profile_.seconds[place], &executable_);
      executable_.update(shard, optimizer_, iteration_);
      if (const auto* update = std::get_if<Update>(&plan_.training[place])) communicator_.mark_updated(update->bucket);
    }
    norm_clipping_.clear();
  }

 private:
  template <typename Call>
  void communicate(const Call& call) {
    const Timed timed(profile_.communication);
    call();
  }

  void update_local(std::size_t place, const Range& range) {
    const Timed timed(profile_.seconds[place]);
    const ReducedShard shard{range.begin, range.end, {&local_gradients_, 1}, true};
    if (needs_norms_) {
      norm_clipping_.defer(place, shard, optimizer_, iteration_);
    } else {
      executable_.update(shard, optimizer_, iteration_);
    }
  }

  const Plan& plan_;
  Executable& executable_;
  Communicator& communicator_;
  const float* const& local_gradients_;
  NormClipping& norm_clipping_;
  StepProfile& profile_;
  const StepContext& context_;
  const Optimizer& optimizer_;
  std::uint64_t iteration_;
  bool needs_norms_;
};

Step::Step(const Plan& plan, Executable& executable, Communicator& communicator, const float* local_gradients)
    : plan_(plan),
      executable_(executable),
      communicator_(communicator),
      local_gradients_(local_gradients),
      with_metrics_(plan, true),
      without_metrics_(plan, false),
      norm_clipping_(plan, executable, communicator) {
  reset_profile();
}

bool Step::reduces_metrics(std::uint64_t iteration) const noexcept { return iteration % plan_.metrics_interval == 0; }

void Step::train(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration) {
  ++profile_.steps;
  const Timed timed(profile_.total);
  (void)communicator_.take_times();  // discards the times between training steps
  run(context, optimizer, iteration, communicator_.is_graph_capturable(),
      [&] { enqueue_training(context, optimizer, iteration); });
  const CommunicationTimes times = communicator_.take_times();
  profile_.waiting += times.shared_memory_wait + times.mpi_wait;
}

template <typename Enqueue>
void Step::run(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration, bool capturable,
               const Enqueue& enqueue) {
  if (executable_.try_replay(context, optimizer, iteration, capturable)) return;
  if (executable_.is_capturing()) {
    capture(enqueue);
  } else {
    enqueue();
  }
}

void Step::enqueue_training(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration) {
  const bool with_metrics = reduces_metrics(iteration);
  TrainingRun run(*this, context, optimizer, iteration);
  (with_metrics ? with_metrics_ : without_metrics_).run(run);
  run.finish_clipping();
  if (with_metrics) run.wait_updated(plan_.metrics_bucket);
  executable_.end_step();
}

template <typename Enqueue>
void Step::capture(const Enqueue& enqueue) {
  std::string problem;
  try {
    enqueue();
  } catch (const InternalError& error) {  // a call that must not be captured
    problem = error.what();
    norm_clipping_.clear();
  }
  const std::string at_end = executable_.end_capture();
  if (problem.empty()) problem = at_end;
  const std::optional<RankProblem> first = first_problem(communicator_, problem);
  if (!first) return executable_.launch_capture();
  if (communicator_.rank() == 0) {
    log_warning(
        fmt::format("rank {} cannot capture a step as a CUDA graph ({}), so all ranks launch each kernel by "
                    "itself, which is slower; LOCKSTEP_CUDA_GRAPHS=0 does so from the start",
                    first->rank, first->what));
  }
  executable_.give_up_captures();
  enqueue();
}

void Step::synchronize() {
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) communicator_.wait_updated(bucket);
}

void Step::infer(const StepContext& context) {
  // A device can capture any pass: it has no tensor parallelism, so that a pass communicates nothing.
  run(context, SGD(), 1, true, [&] {
    for (const PlanStep& step : plan_.inference) infer(step, context);
    executable_.end_step();
  });
}

void Step::predict(const StepContext& context) {
  for (const PlanStep& step : plan_.inference) {
    const Operation* operation = plan_.operation_of(step);
    if (operation == nullptr || operation->kind != OperationKind::loss) infer(step, context);
  }
}

void Step::infer(const PlanStep& step, const StepContext& context) {
  std::visit(Overloaded{[&](const Compute& compute) { executable_.run(compute.operation, context); },
                        [&](const MarkReady& ready) { communicator_.mark_ready(ready.bucket); },
                        [&](const WaitUpdated& wait) { communicator_.wait_updated(wait.bucket); },
                        [&](const StartAllToAll& start) { communicator_.start_all_to_all(start.all_to_all); },
                        [&](const FinishAllToAll& finish) { communicator_.finish_all_to_all(finish.all_to_all); },
                        [&](const Update& update) {  // a partial sum: UpdateRule::assign ignores the optimizer
                          executable_.update(communicator_.wait_reduced(update.bucket), SGD(), 1);
                          communicator_.mark_updated(update.bucket);
                        },
                        [](const UpdateLocal&) {}},  // inference updates no weights
             step);
}

void Step::reset_profile() {
  profile_ = {};
  profile_.seconds.resize(plan_.training.size());
}

}  // namespace lockstep
