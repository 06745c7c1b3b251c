// A compiled model on this rank: its plan, its memory, its place in the stream of examples.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "data/sampler.hpp"
#include "plan/lower.hpp"
#include "plan/plan.hpp"
#include "plan/step.hpp"
#include "training/runtime.hpp"

#include <lockstep/training/model.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// Throws DataError where the loss is NaN or infinite: training on would only spoil the weights. All ranks hold the
/// same sums, so all throw. `where` is "epoch 1, step 2".
void check_loss(const StepMetrics& metrics, const std::string& where);

class ModelState {
 public:
  ModelState(std::shared_ptr<Runtime> runtime, Sequential architecture);

  void compile(const CompileOptions& options);

  /// Checks the data once: that it fits the model, and that all workers hold the same.
  void use(const Dataset& data);

  StepMetrics train(const Batch& batch);

  /// Training in two halves, for devices that compute while the host goes on: `start` enqueues a step, `finish` takes
  /// the metrics of the oldest one. At most `steps_ahead` may be under way.
  void start(const Batch& batch);
  StepMetrics finish();
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_; }
  [[nodiscard]] std::size_t steps_ahead() { return compiled().executable->steps_ahead(); }

  /// Adds this rank's metric sums of the batch; `all_reduce` makes them everybody's.
  void test(const Batch& batch, StepMetrics& local);
  [[nodiscard]] StepMetrics all_reduce(const StepMetrics& local);

  std::vector<float> predict(const Dataset& data);

  [[nodiscard]] std::vector<Variable> weights();
  void set_weights(const std::vector<Variable>& weights);

  /// Optimizer state of slot `slot`, one variable a trainable weight.
  [[nodiscard]] std::vector<Variable> slot(int slot);

  void save(const std::filesystem::path& path);

  /// The epoch's record: what was trained since the last one, and what the caller adds.
  const EpochRecord& end_epoch(int epoch, const Logs& more);

  [[nodiscard]] Optimizer& optimizer() { return compiled().options.optimizer; }

  /// Optimizer steps begun since compile.
  [[nodiscard]] std::uint64_t steps() const noexcept { return iteration_; }

  /// Whether fit() has been asked to end.
  [[nodiscard]] bool stops() const noexcept { return stops_; }
  void set_stops(bool stops) noexcept { stops_ = stops; }

  [[nodiscard]] Runtime& runtime() noexcept { return *runtime_; }
  [[nodiscard]] const Sequential& architecture() const noexcept { return architecture_; }
  [[nodiscard]] bool has_metric(Metric metric) const noexcept;
  [[nodiscard]] Logs logs_of(const StepMetrics& metrics, const std::string& prefix = "") const;
  [[nodiscard]] const History& history() const noexcept { return history_; }
  void set_evaluation(const Logs& logs) { evaluation_ = logs; }

 private:
  /// What a compile makes and the next one replaces; in the order in which things depend on each other.
  struct Compiled {
    CompileOptions options;
    std::unique_ptr<Communicator> communicator;
    Plan plan;
    Arenas arenas;
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Step> step;
    std::size_t capacity = 0;
  };

  [[nodiscard]] Compiled& compiled();
  [[nodiscard]] StepContext prepare(const Batch& batch, bool training);
  void write_weights();
  void count_seconds(double seconds);

  std::shared_ptr<Runtime> runtime_;
  Sequential architecture_;
  std::vector<Variable> values_;  ///< until compile, and between two
  std::unique_ptr<Compiled> compiled_;
  std::uint64_t iteration_ = 0;
  std::size_t under_way_ = 0;
  bool stops_ = false;

  /// What a data set was when it was checked: when it is gone, another may lie in its place. All ranks must decide
  /// alike whether to check, so nothing here may depend on where a rank's heap is.
  struct CheckedData {
    const Dataset* data;
    std::size_t size;
    std::size_t kind_of_targets;
    std::int64_t elements;  ///< of an example
    friend bool operator==(const CheckedData&, const CheckedData&) = default;
  };
  [[nodiscard]] static CheckedData identity_of(const Dataset& data);
  void check_examples(const Dataset& data) const;
  std::vector<CheckedData> checked_;
  std::unique_ptr<ExampleStream> stream_;
  const Dataset* streamed_ = nullptr;
  bool stream_shuffles_ = false;
  std::vector<std::uint32_t> examples_;
  std::vector<ReplicaRows> replicas_;

  History history_;
  Logs evaluation_;
  StepMetrics epoch_metrics_;
  double epoch_seconds_ = 0;
  double seconds_to_first_step_ = 0;
  double step_seconds_ = 0;
};

}  // namespace lockstep
