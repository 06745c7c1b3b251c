// A model on this rank: its architecture, what compiling made of it, its place in the job.
#pragma once

#include "report/history_json.hpp"
#include "training/compiled_model.hpp"
#include "training/runtime.hpp"
#include "training/training_log.hpp"

#include <lockstep/training/model.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Throws DataError where the loss is NaN or infinite: training on would only spoil the weights. All ranks hold the
/// same sums, so all throw. `where` is "epoch 1, step 2".
void check_loss(const StepMetrics& metrics, const std::string& where);

class Backups;

/// The next step of a fit or of a loop of one's own.
struct Position {
  int epoch = 0;
  std::int64_t step = 0;  ///< of the epoch
};

class ModelState {
 public:
  ModelState(std::shared_ptr<Runtime> runtime, Sequential architecture);
  ~ModelState();
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  void compile(const CompileOptions& options);

  [[nodiscard]] std::optional<CompileOptions> compilation() const {
    return compiled_ ? std::optional(compiled_->options) : std::nullopt;
  }

  /// Checks the data once: that it fits the model, and that all workers hold the same.
  void use(const Dataset& data) { feed().use(data, compiled().options.loss); }
  [[nodiscard]] std::string description_of(const Dataset& data) { return feed().description_of(data); }

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

  /// Takes over a file's weights. Their shapes must be this model's.
  void load_weights(const SavedModel& saved);

  /// Takes over a file's weights and, where its optimizer is this model's, the optimizer's state and step. Their shapes
  /// must be this model's.
  void load(const SavedModel& saved);

  /// For a model's summary: how workers divide its layers, where that was chosen; empty for what is by examples anyway.
  [[nodiscard]] std::string summary_of_division() const;

  /// "examples", or "features" and how.
  [[nodiscard]] std::string description_of_division();

  /// Whether layers are divided by features: then a snapshot, weights(), save() and predict() are collective.
  [[nodiscard]] bool is_divided() { return compiled().division.has_value(); }

  /// Whether this rank has to do with files: all ranks of a divided model, else the chief.
  [[nodiscard]] bool takes_part_in_saving() { return runtime_->world().is_chief() || is_divided(); }

  /// What a file holds, copied between two steps: for the chief, to be written on another thread. Valid until the next
  /// call; not while the last one's is still being written.
  [[nodiscard]] Snapshot& take_snapshot();
  /// Writes it there, as soon as it is complete (see Runtime::write_later).
  void write_later(std::function<void()> job);

  /// The chief writes model and history; `save_later` copies, and writes beside training (see Runtime::write_later).
  void save(const std::filesystem::path& path);
  void save_later(const std::filesystem::path& path);

  /// The epoch's record: what was trained since the last one, and what the caller adds.
  const EpochRecord& end_epoch(int epoch, const Logs& more);

  [[nodiscard]] Optimizer& optimizer() { return compiled().options.optimizer; }

  /// Optimizer steps begun since compile.
  [[nodiscard]] std::uint64_t steps() const noexcept { return iteration_; }

  /// Whether fit() has been asked to end.
  [[nodiscard]] bool stops() const noexcept { return stops_; }
  void set_stops(bool stops) noexcept { stops_ = stops; }

  [[nodiscard]] Position position() const noexcept { return position_; }
  void set_position(Position position) noexcept { position_ = position; }

  /// What launchers have asked for up to the last step that is finished; the same on all ranks.
  [[nodiscard]] Request request() const noexcept { return request_; }
  /// For a training that keeps no backups: does as asked, where that cannot wait.
  void leave_if_asked();

  /// Numbers of a custom loop's own, by name.
  [[nodiscard]] std::map<std::string, double>& numbers() noexcept { return numbers_; }

  /// Whether a custom loop over epochs was begun.
  [[nodiscard]] bool loops() const noexcept { return loops_; }
  void set_loops() noexcept { loops_ = true; }

  /// Those of the custom loop that runs; null where it keeps none.
  [[nodiscard]] Backups* loop_backups() const noexcept { return loop_backups_.get(); }
  void set_loop_backups(std::unique_ptr<Backups> backups);

  /// Replicas of the job, and a job's that goes on here: BatchNormalization shall see the same slices as before.
  [[nodiscard]] std::size_t replicas() const noexcept { return replicas_; }
  void keep_replicas(int replicas);

  /// What measuring chose for a job goes on here, where measuring would choose again (--division auto): a run that was
  /// broken off ends with the bits of one that was not. `division` is as made_by() has it.
  void keep_division(const std::string& division);

  /// A division as made_by() of so many workers has it, for a person.
  [[nodiscard]] std::string division_in_words(const std::string& division, const std::string& workers);

  [[nodiscard]] Runtime& runtime() noexcept { return *runtime_; }
  [[nodiscard]] const Sequential& architecture() const noexcept { return architecture_; }
  [[nodiscard]] bool has_metric(Metric metric) const noexcept;
  [[nodiscard]] Logs logs_of(const StepMetrics& metrics, const std::string& prefix = "") const;
  [[nodiscard]] TrainingLog& log() noexcept { return log_; }
  void set_evaluation(const Logs& logs) { evaluation_ = logs; }

  /// What all workers, and all runs of a job, must have in common of the model, by name.
  [[nodiscard]] NamedTexts identity();

  /// What else bits depend on: plan, device, libraries, number of workers.
  [[nodiscard]] std::map<std::string, std::string> made_by();

 private:
  [[nodiscard]] CompiledModel& compiled();
  [[nodiscard]] BatchFeed& feed() { return *compiled().feed; }
  [[nodiscard]] RunReport report();
  [[nodiscard]] std::function<void()> write_to(const std::filesystem::path& path);
  /// What this rank's last step, or pass of a test, counted.
  [[nodiscard]] std::array<float, metric_places> own_metrics() const;
  void tell_step(const StepMetrics& metrics);
  void write_weights();

  std::shared_ptr<Runtime> runtime_;
  Sequential architecture_;
  std::size_t replicas_;
  std::string kept_division_;     ///< the code of a job's division that goes on here
  std::vector<Variable> values_;  ///< until compile, and between two
  std::unique_ptr<CompiledModel> compiled_;
  std::uint64_t iteration_ = 0;
  std::size_t under_way_ = 0;
  double wait_seconds_ = 0;  ///< for other ranks, since the first step
  bool stops_ = false;
  Request request_ = Request::none;
  Position position_;
  std::map<std::string, double> numbers_;
  TrainingLog log_;
  Logs evaluation_;
  bool loops_ = false;
  std::unique_ptr<Backups> loop_backups_;
};

}  // namespace lockstep
