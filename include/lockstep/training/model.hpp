// The model as its user holds it: compile, fit, evaluate, predict, save; or step by step in a loop of one's own.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/optimizers.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/custom_loop.hpp>
#include <lockstep/training/values.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct CompileOptions {
  Optimizer optimizer = SGD();
  Loss loss = SparseCategoricalCrossentropy();
  std::vector<Metric> metrics = {};
};

struct FitOptions {
  int epochs = 1;
  int steps_per_epoch = 0;                   ///< 0: one pass over the data. Else batches go on across passes.
  const Dataset* validation_data = nullptr;  ///< evaluated after each epoch, metrics prefixed "val_"
  double validation_split = 0;               ///< or: the last share of `data`, which is then not trained on
  int validation_freq = 1;                   ///< validate after every so many epochs
  int initial_epoch = 0;                     ///< go on with this one; `epochs` is the last one's number plus one
  std::vector<AnyCallback> callbacks = {};   ///< called in this order
  bool shuffle = true;
};

class ModelState;  // what the strategy ties together: plan, device, world

/// Every call below is collective: all workers make the same calls in the same order. Not thread-safe.
/// Workers on hosts of their own, and the links that join them.
struct PredictionOptions {
  int most_workers = 8;
  double latency = 50e-6;             ///< of a message, in seconds
  double bytes_per_second = 0.125e9;  ///< of each worker's link, one way
};

class Model {
 public:
  explicit Model(std::unique_ptr<ModelState> state);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// Must come before anything that trains or evaluates. Options::learning_rate, where given, replaces the optimizer's.
  void compile(const CompileOptions& options);

  /// How it was compiled, if it was.
  [[nodiscard]] std::optional<CompileOptions> compilation() const;

  /// Trains; the chief shows progress. Throws DataError when the loss is NaN or infinite (names epoch and step).
  History fit(const Dataset& data, const FitOptions& options = {});

  /// Mean loss and metrics over `data`, without Dropout and with moving statistics.
  Logs evaluate(const Dataset& data);

  /// The outputs for all examples, row-major [size, output elements]; the same on every worker. Of a model divided by
  /// features (--division) no worker has all weights: there predict(), weights(), save() and save_later() are for all
  /// workers to call together.
  std::vector<float> predict(const Dataset& data);

  /// One optimizer step on one global batch: for loops of one's own.
  StepMetrics train_step(const Batch& batch);
  StepMetrics test_step(const Batch& batch);

  /// The epochs of a loop of one's own, backed up and restored as the options say (see custom_loop.hpp).
  [[nodiscard]] EpochRange epochs(int epochs);

  /// The global batches of the epoch that such a loop is in. Throws UsageError outside of one.
  [[nodiscard]] BatchRange batches(const Dataset& data, bool shuffle = true);

  /// A number of the loop's own that backups keep: 0 at first. The reference stays good as long as the model.
  [[nodiscard]] double& kept(const std::string& name);

  /// Notes an epoch of a loop of one's own in the run's history: loss and metrics of the steps since the last one, and
  /// what `more` adds (validation, say). Returns the epoch's logs.
  Logs end_epoch(int epoch, const Logs& more = {});

  /// All variables in Keras' order and layout; the same on every worker.
  [[nodiscard]] std::vector<Variable> weights() const;
  void set_weights(const std::vector<Variable>& weights);

  /// The weights of a .keras, .h5 or .weights.h5 file, which the chief reads for all. Throws IoError, or DataError
  /// where it is damaged, of another architecture, or holds what is no number.
  void load_weights(const std::filesystem::path& path);

  /// The chief writes a .keras, .h5 or .weights.h5 file, whole or not at all; the others do nothing.
  void save(const std::filesystem::path& path) const;

  /// As save(), but training loses only the time of a copy: the file is written beside it. Whether a file that cannot
  /// be written ends training, --on-checkpoint-failure says; the next call that saves, or the end of fit(), throws
  /// then.
  void save_later(const std::filesystem::path& path) const;

  /// The chief prints Keras' summary table; where --division left a choice, how workers divide each layer as well.
  void summary() const;

  /// How 1, 2, 4 ... workers would divide this model, by examples and by features, what each layer would send, and how
  /// long a step would take: lines for a person. Kernels are measured on this machine; nothing is trained.
  [[nodiscard]] std::string predict_steps(const PredictionOptions& options = {}) const;

  [[nodiscard]] const Sequential& architecture() const;

  [[nodiscard]] double learning_rate() const;
  void set_learning_rate(double learning_rate);

  /// Optimizer steps begun so far; all are done, but between batches of fit() on a GPU.
  [[nodiscard]] std::int64_t iterations() const;

  /// The sums as means, under the names of the loss and metrics of this model's compilation.
  [[nodiscard]] Logs logs_of(const StepMetrics& metrics) const;

  /// Ends fit() after this batch or epoch.
  void stop_training();

  [[nodiscard]] bool is_chief() const;

  /// Prints on the chief only, on a line of its own.
  void print(const std::string& line) const;

 private:
  std::unique_ptr<ModelState> state_;
};

}  // namespace lockstep
