// The model as users see it: compile, fit, evaluate, predict, save, or a custom training loop.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/core/named_tensor.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/compile_options.hpp>
#include <lockstep/training/custom_loop.hpp>
#include <lockstep/training/metric_sums.hpp>
#include <lockstep/training/step_metrics.hpp>

#include <fmt/core.h>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct FitOptions {
  int batch_size = 0;  ///< examples of a step over all workers, in validation too; 0: --global-batch-size
  int epochs = 1;
  int steps_per_epoch = 0;                   ///< 0: one pass over the data; else epochs continue where the last ended
  const Dataset* validation_data = nullptr;  ///< evaluated after each epoch, metrics prefixed "val_"
  double validation_split = 0;               ///< without validation_data: holds out this last fraction of the data
  int validation_freq = 1;                   ///< in epochs
  int initial_epoch = 0;                     ///< index of the first epoch; the last one is `epochs` - 1
  std::vector<AnyCallback> callbacks = {};   ///< called in this order
  bool shuffle = true;
  /// By class, the factor of its examples' losses in training; 1 for a class that is not listed.
  std::map<int, double> class_weight = {};
};

/// Options of evaluate() and predict().
struct InferenceOptions {
  int batch_size = 0;  ///< examples computed at once over all workers; 0: --global-batch-size
};

struct ModelParts;

/// One worker per host, and the links between the hosts.
struct NetworkOptions {
  int max_workers = 8;
  double latency = 50e-6;             ///< of one message, in seconds
  double bytes_per_second = 0.125e9;  ///< bandwidth of each host's link in one direction
};

/// Collective, except for is_chief(), print() and the getters: all workers make the same calls in the same order. Not
/// thread-safe.
class Model {
 public:
  explicit Model(std::unique_ptr<ModelParts> parts);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// Call it before training or evaluating. Options::learning_rate, if set, replaces the optimizer's.
  void compile(const CompileOptions& options);

  /// The current compile options, with the learning rate in force; nullopt before compile().
  [[nodiscard]] std::optional<CompileOptions> compile_options() const;

  /// Trains; the chief shows progress. Returns the epochs of this call. Throws DataError with epoch and step if the
  /// loss, or at an epoch's end a weight, becomes NaN or infinite; under a launcher that keeps backups, PeerError the
  /// first time, for one restart.
  History fit(const Dataset& data, const FitOptions& options = {});

  /// Throws DataError or UsageError unless the compiled model can be trained on `data` and evaluated on it. fit and
  /// evaluate call it; call it before training for data that is used after it. predict checks the inputs alone.
  void validate(const Dataset& data) const;

  /// Mean loss and metrics over `data`, without Dropout and with moving statistics.
  Logs evaluate(const Dataset& data, const InferenceOptions& options = {});

  /// The outputs for all examples, row-major [size, output elements]; the same on every worker. Throws UsageError if
  /// the model has several.
  std::vector<float> predict(const Dataset& data, const InferenceOptions& options = {});

  /// The same for each output, in the model's order.
  std::vector<std::vector<float>> predict_outputs(const Dataset& data, const InferenceOptions& options = {});

  /// One optimizer step, or one evaluation step, on a global batch of any size. For custom loops. The first step with a
  /// batch size compiles kernels; those of the last few batch sizes are kept. On a GPU, `train_step` returns before the
  /// step has finished: reading its metrics waits for it (StepMetrics), and a loss that is NaN is reported some steps
  /// later.
  StepMetrics train_step(const Batch& batch);
  MetricSums test_step(const Batch& batch);

  /// The epochs of a custom loop, backed up and restored as the options say (see custom_loop.hpp).
  [[nodiscard]] EpochRange epochs(int epochs);

  /// The global batches of the loop's epoch: one pass over `data`, whose last batch may be shorter, or
  /// --steps-per-epoch full batches. Throws UsageError for shuffled batches outside a loop over epochs().
  [[nodiscard]] BatchRange batches(const Dataset& data, const BatchOptions& options = {});

  /// A number that backups save and restore, initially 0. The reference is valid as long as the model.
  [[nodiscard]] double& tracked(const std::string& name);

  /// Adds an epoch of a custom loop to the history: loss and metrics of the steps since the last epoch, and `more`
  /// (validation metrics, for example). Returns the epoch's logs.
  Logs end_epoch(int epoch, const Logs& more = {});

  /// All variables in Keras' order and layout; the same on every worker. Collective: no worker holds all weights of a
  /// tensor-parallel model (--parallelism).
  [[nodiscard]] std::vector<NamedTensor> weights() const;
  void set_weights(const std::vector<NamedTensor>& weights);

  /// Loads the weights of a .keras, .h5 or .weights.h5 file, which only the chief reads. Throws IoError, or DataError
  /// if the file is damaged, has another architecture, or holds NaN or infinite values.
  void load_weights(const std::filesystem::path& path);

  /// The chief writes a .keras, .h5 or .weights.h5 file, atomically. The other workers write nothing.
  void save(const std::filesystem::path& path) const;

  /// As save(), but returns after copying the weights; the file is written in the background. An earlier file is waited
  /// for first. If one cannot be written, --on-checkpoint-failure decides whether that is a warning or an IoError,
  /// which the next save or the end of fit() throws.
  void save_async(const std::filesystem::path& path) const;

  /// The chief prints Keras' summary table and, if --parallelism left a choice, how each layer is sharded.
  void summary() const;

  /// Predicts, for a person to read, how 1, 2, 4 ... workers would shard this model, what each layer would send, and
  /// how long a step would take in each way (data parallel, tensor parallel, replicated), for the last batch size of
  /// training. Measures
  /// kernels on this machine; trains nothing.
  [[nodiscard]] std::string estimate_step_time(const NetworkOptions& options = {}) const;

  /// The kernels that a training step runs on this worker, with layouts and times, which are measured now.
  [[nodiscard]] std::string describe_kernels() const;

  [[nodiscard]] const Architecture& architecture() const;

  [[nodiscard]] double learning_rate() const;
  void set_learning_rate(double learning_rate);

  /// Optimizer steps begun so far. On a GPU, some may still be in flight.
  [[nodiscard]] std::int64_t iterations() const;

  /// The loss and the metrics that the model was compiled with, by name.
  [[nodiscard]] Logs to_logs(const MetricSums& metrics) const;

  /// Makes fit() end after the current batch or epoch.
  void stop_training();

  [[nodiscard]] bool is_chief() const;

  /// Prints a line on the chief, unless --verbose is 0: print("epoch {}: {:.4f}", epoch, loss). The format is fmt's,
  /// checked at compile time; a text that is not a constant goes through "{}".
  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    if (is_chief()) print_line(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void print_line(const std::string& line) const;

  std::unique_ptr<ModelParts> parts_;

  friend ModelParts& parts_of(Model& model);  // model_parts.hpp of the module
};

}  // namespace lockstep
