// A loop of one's own on a GPU: train_step() returns before the step has finished, and its metrics may be read or not.
#include "session/training_session.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "training/model_parts.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

Options on_gpu() {
  Options options = silent_options(8);
  options.device = Device::cuda;
  options.deterministic = true;
  return options;
}

constexpr std::size_t steps_in_epoch = 24;  // more than may be in flight

}  // namespace

TEST_CASE("a loop that reads no metrics leaves steps in flight, and ends with the same bits") {
  const Examples examples = make_examples(everything, logits, steps_in_epoch * 8, 3);
  Job reading(everything, plain, on_gpu());
  Job silent(everything, plain, on_gpu());
  const TrainingSession& session = parts_of(silent.model).session;
  std::vector<MetricSums> read;
  for (const int epoch : reading.model.epochs(2)) {
    for (const Batch& batch : reading.model.batches(examples.data)) {
      read.push_back(reading.model.train_step(batch));
      CHECK(parts_of(reading.model).session.in_flight() > 0);  // it is read, not finished
    }
    reading.model.end_epoch(epoch);
  }
  std::size_t steps = 0;
  for (const int epoch : silent.model.epochs(2)) {
    MetricSums expected;
    std::size_t in_epoch = 0;
    for (const Batch& batch : silent.model.batches(examples.data)) {
      const StepMetrics metrics = silent.model.train_step(batch);
      CHECK(session.in_flight() == std::min(++in_epoch, session.max_in_flight() - 1));
      if (in_epoch % 10 == 0) CHECK(metrics.loss() == read[steps].loss());
      expected += read[steps++];
    }
    CHECK(session.in_flight() == 0);
    const Logs logs = silent.model.end_epoch(epoch);
    CHECK(logs.at("loss") == expected.loss());
    const MetricSums test = silent.model.test_step({.data = &examples.data, .size = 8, .shuffle = false});
    CHECK(test.num_examples == 8);
  }
  CHECK(same_bits(silent.model.weights(), reading.model.weights()));
}

namespace {

/// Evaluates after each batch, while later steps of fit() may be in flight.
class EvaluateOften final : public Callback {
 public:
  explicit EvaluateOften(const Dataset& data) : data_(data) {}
  void on_train_batch_end(Model& model, std::int64_t /*step*/, const MetricSums& /*so_far*/) override {
    CHECK(model.evaluate(data_).at("loss") > 0);
    ++calls_;
  }
  [[nodiscard]] std::size_t calls() const noexcept { return calls_; }

 private:
  const Dataset& data_;
  std::size_t calls_ = 0;
};

}  // namespace

TEST_CASE("an evaluation while steps are in flight changes nothing") {
  const Examples examples = make_examples(everything, logits, steps_in_epoch * 8, 3);
  Job plainly(everything, plain, on_gpu());
  Job evaluating(everything, plain, on_gpu());
  const auto callback = std::make_shared<EvaluateOften>(examples.data);
  const History expected = plainly.model.fit(examples.data, {.epochs = 2});
  const History found = evaluating.model.fit(examples.data, {.epochs = 2, .callbacks = {callback}});
  CHECK(callback->calls() == 2 * steps_in_epoch);
  CHECK(found["loss"] == expected["loss"]);
  CHECK(same_bits(evaluating.model.weights(), plainly.model.weights()));
}

TEST_CASE("metrics are read before the next step, and a batch of another size finishes those before it") {
  const Examples examples = make_examples(everything, logits, 64, 3);
  Job job(everything, plain, on_gpu());
  const auto step_of = [&](std::uint64_t position, std::size_t size) {
    return job.model.train_step({.data = &examples.data, .position = position, .size = size});
  };
  const StepMetrics first = step_of(0, 8);
  const StepMetrics second = step_of(8, 8);
  CHECK(parts_of(job.model).session.in_flight() == 2);
  CHECK_THROWS_AS(first.get(), UsageError);
  const double loss = second.loss();
  CHECK(second.loss() == loss);
  CHECK(second.get().num_examples == 8);
  const StepMetrics larger = step_of(16, 20);
  CHECK(parts_of(job.model).session.in_flight() == 1);
  CHECK(larger.get().num_examples == 20);
}
