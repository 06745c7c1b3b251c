// See step.hpp.
#include "plan/step.hpp"

#include "core/clock.hpp"

#include <utility>

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

}  // namespace

void Step::run_compute(const Operation& operation, const StepContext& context) {
  double* sum = &profile_.forward;
  if (operation.kind == OperationKind::gather) sum = &profile_.input;
  if (operation.kind == OperationKind::loss) sum = &profile_.loss;
  if (operation.kind > OperationKind::loss) sum = &profile_.backward;
  const Timed timed(*sum);
  executable_.run(operation, context);
}

void Step::train(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration) {
  for (const Operation& operation : plan_.training) {
    switch (operation.kind) {
      case OperationKind::contribute: communicator_.contribute(static_cast<std::size_t>(operation.bucket)); break;
      case OperationKind::await: {
        const Timed timed(profile_.reduce);
        communicator_.await(static_cast<std::size_t>(operation.bucket));
        break;
      }
      case OperationKind::update: {
        const auto bucket = static_cast<std::size_t>(operation.bucket);
        ReducedShare share;
        {
          const Timed timed(profile_.reduce);
          share = communicator_.reduce(bucket);
        }
        const Timed timed(profile_.optimizer);
        executable_.update({share.begin, share.end, share.sources}, optimizer, iteration);
        communicator_.publish(bucket);
        break;
      }
      default: run_compute(operation, context);
    }
  }
  const Timed timed(profile_.reduce);
  communicator_.await(plan_.metrics_bucket);
  ++profile_.steps;
}

void Step::infer(const StepContext& context) {
  for (const Operation& operation : plan_.inference) executable_.run(operation, context);
}

StepProfile Step::take_profile() noexcept { return std::exchange(profile_, {}); }

}  // namespace lockstep
