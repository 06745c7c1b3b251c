// See step.hpp.
#include "plan/step.hpp"

#include "core/clock.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

namespace lockstep {

namespace {

/// Adds the time until the end of the scope to a sum. Two clock reads cost some 40 ns; a step has about a hundred.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), begin_(monotonic_seconds()) {}
  ~Timed() { sum_ += monotonic_seconds() - begin_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  double begin_;
};

const char* kind_of_work(OperationKind kind) {
  if (kind == OperationKind::gather) return "input";
  if (kind == OperationKind::loss) return "loss";
  if (kind == OperationKind::update || kind == OperationKind::update_own) return "optimizer";
  if (kind == OperationKind::contribute || kind == OperationKind::await) return "communication";
  if (kind >= OperationKind::pack) return "communication";
  return kind < OperationKind::loss ? "forward" : "backward";
}

}  // namespace

Step::Course::Course(const Plan& plan, bool sums_metrics) : operations(plan.operations_of_step(sums_metrics)) {
  const auto is_update = [&](std::size_t i) { return plan.training[i].kind == OperationKind::update; };
  std::copy_if(operations.begin(), operations.end(), std::back_inserter(updates), is_update);
}

Step::Step(const Plan& plan, Executable& executable, Communicator& communicator, const float* own_gradients)
    : plan_(plan),
      executable_(executable),
      communicator_(communicator),
      own_gradients_(own_gradients),
      with_metrics_(plan, true),
      without_metrics_(plan, false),
      norm_clipping_(plan, executable, communicator) {
  reset_profile();
}

bool Step::sums_metrics(std::uint64_t iteration) const noexcept { return iteration % plan_.metrics_every == 0; }

void Step::train(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration) {
  ++profile_.steps;
  if (executable_.begin_step(context, optimizer, iteration, communicator_.only_enqueues())) return;
  const bool needs_norms = clipping_of(optimizer).needs_norms();
  const bool with_metrics = sums_metrics(iteration);
  const Course& course = with_metrics ? with_metrics_ : without_metrics_;
  std::size_t due = 0;   // of the course's updates: those before it have been come to
  std::size_t done = 0;  // and those before it made; between them, gradients were still on their way
  const auto bucket_of = [&](std::size_t update) {
    return static_cast<std::size_t>(plan_.training[course.updates[update]].bucket);
  };
  const auto update_next = [&] {
    const std::size_t bucket = bucket_of(done);
    const std::size_t i = course.updates[done++];
    if (needs_norms && norm_clipping_.concerns(bucket)) {
      const UpdateShare share = reduce(bucket);
      const Timed timed(profile_.seconds[i]);
      norm_clipping_.hold(i, share);
    } else {
      sum_up(plan_.training[i], optimizer, iteration, profile_.seconds[i]);
    }
  };
  for (const std::size_t i : course.operations) {
    const Operation& operation = plan_.training[i];
    const auto bucket = static_cast<std::size_t>(operation.bucket);
    switch (operation.kind) {
      case OperationKind::contribute: {
        const Timed timed(profile_.reduce);
        communicator_.contribute(bucket);
        break;
      }
      case OperationKind::await: {
        std::size_t until = due;
        while (until > done && bucket_of(until - 1) != bucket) --until;
        while (done < until) update_next();
        const Timed timed(profile_.reduce);
        communicator_.await(bucket);
        break;
      }
      case OperationKind::give: {
        const Timed timed(profile_.reduce);
        communicator_.give(static_cast<std::size_t>(operation.exchange));
        break;
      }
      case OperationKind::take: {
        const Timed timed(profile_.reduce);
        communicator_.take(static_cast<std::size_t>(operation.exchange));
        break;
      }
      case OperationKind::update: ++due; break;
      case OperationKind::update_own: {
        const Timed timed(profile_.seconds[i]);
        const BucketRange& range = plan_.own_ranges[bucket];
        const UpdateShare share{range.begin, range.end, {&own_gradients_, 1}, true};
        if (needs_norms) {
          norm_clipping_.hold(i, share);
        } else {
          executable_.update(share, optimizer, iteration);
        }
        break;
      }
      default: {
        {
          const Timed timed(profile_.seconds[i]);
          executable_.run(operation, context);
        }
        const Timed timed(profile_.reduce);
        communicator_.advance();
      }
    }
    while (done < due && communicator_.is_here(bucket_of(done))) update_next();
  }
  while (done < due) update_next();
  if (needs_norms) clip_and_update(optimizer, iteration);
  if (with_metrics) {
    const Timed timed(profile_.reduce);
    communicator_.await(plan_.metrics_bucket);
  }
  executable_.end_step();
}

void Step::settle() {
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) communicator_.await(bucket);
}

void Step::sum_up(const Operation& update, const Optimizer& optimizer, std::uint64_t iteration, double& seconds) {
  const auto bucket = static_cast<std::size_t>(update.bucket);
  const UpdateShare share = reduce(bucket);
  const Timed timed(seconds);
  executable_.update(share, optimizer, iteration);
  communicator_.publish(bucket);
}

UpdateShare Step::reduce(std::size_t bucket) {
  const Timed timed(profile_.reduce);
  const ReducedShare share = communicator_.reduce(bucket);
  return {.begin = share.begin, .end = share.end, .sources = share.sources};
}

void Step::clip_and_update(const Optimizer& optimizer, std::uint64_t iteration) {
  {
    const Timed timed(profile_.reduce);
    norm_clipping_.agree(clipping_of(optimizer));
  }
  for (const auto& [operation, share] : norm_clipping_.held()) {
    const Timed timed(profile_.seconds[operation]);
    executable_.update(share, optimizer, iteration);
    if (!share.own) communicator_.publish(static_cast<std::size_t>(plan_.training[operation].bucket));
  }
  norm_clipping_.release();
}

void Step::infer(const StepContext& context) {
  for (const Operation& operation : plan_.inference) infer(operation, context);
}

void Step::predict(const StepContext& context) {
  for (const Operation& operation : plan_.inference) {
    if (operation.kind != OperationKind::loss) infer(operation, context);
  }
}

void Step::infer(const Operation& operation, const StepContext& context) {
  const auto bucket = static_cast<std::size_t>(operation.bucket);
  switch (operation.kind) {
    case OperationKind::contribute: communicator_.contribute(bucket); break;
    case OperationKind::await: communicator_.await(bucket); break;
    case OperationKind::give: communicator_.give(static_cast<std::size_t>(operation.exchange)); break;
    case OperationKind::take: communicator_.take(static_cast<std::size_t>(operation.exchange)); break;
    case OperationKind::update: {
      double seconds = 0;
      sum_up(operation, SGD(), 1, seconds);
      break;
    }
    default: executable_.run(operation, context);
  }
}

void Step::reset_profile() {
  profile_ = {};
  profile_.seconds.resize(plan_.training.size());
}

std::map<std::string, double> StepProfile::by_kind(const Plan& plan) const {
  std::map<std::string, double> milliseconds;
  if (steps == 0) return milliseconds;
  const double each = 1000.0 / static_cast<double>(steps);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    milliseconds[kind_of_work(plan.training[i].kind)] += seconds[i] * each;
  }
  milliseconds["communication"] += reduce * each;
  return milliseconds;
}

std::map<std::string, double> StepProfile::by_operation(const Plan& plan) const {
  std::map<std::string, double> milliseconds;
  if (steps == 0) return milliseconds;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Operation& operation = plan.training[i];
    if (operation.id < 0) continue;
    const std::string name = std::string(name_of(operation.kind)) + " " + plan.graph.layers[operation.layer].name;
    milliseconds[name] += seconds[i] * 1000.0 / static_cast<double>(steps);
  }
  return milliseconds;
}

}  // namespace lockstep
