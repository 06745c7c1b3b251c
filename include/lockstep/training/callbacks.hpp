// What fit() calls between batches and epochs: Keras' callbacks, and the class to derive one's own from.
//
// Every worker runs every callback with the same reduced metrics, so all of them take the same decisions; what is
// written is written by the chief alone.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/training/values.hpp>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class Model;

/// Derive from it and override what you need. Epochs and batches count from 0.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_train_begin(Model& /*model*/) {}
  virtual void on_epoch_begin(Model& /*model*/, int /*epoch*/) {}
  /// After every optimizer step; `epoch_so_far` sums up the epoch's batches.
  virtual void on_train_batch_end(Model& /*model*/, std::int64_t /*batch*/, const StepMetrics& /*epoch_so_far*/) {}
  /// `logs` may be added to; the history keeps what is in it.
  virtual void on_epoch_end(Model& /*model*/, int /*epoch*/, Logs& /*logs*/) {}
  virtual void on_train_end(Model& /*model*/) {}
};

/// Any callback, so that lists of them can be written down: {EarlyStopping(), CSVLogger("log.csv")}.
class AnyCallback {
 public:
  template <std::derived_from<Callback> Derived>
  AnyCallback(Derived callback)  // NOLINT(google-explicit-constructor): a list of callbacks is what users write
      : callback_(std::make_shared<Derived>(std::move(callback))) {}
  template <std::derived_from<Callback> Derived>
  AnyCallback(std::shared_ptr<Derived> callback)  // NOLINT(google-explicit-constructor): to look at it afterwards
      : callback_(std::move(callback)) {}
  [[nodiscard]] Callback& get() const noexcept { return *callback_; }

 private:
  std::shared_ptr<Callback> callback_;
};

/// Which way a monitored metric improves. automatic: up if its name speaks of accuracy, down if of loss.
enum class MonitorMode { automatic, min, max };

/// Compares a metric with its best value so far. Throws UsageError where `automatic` cannot tell the direction.
class Monitor {
 public:
  Monitor(std::string metric, MonitorMode mode, double min_delta);

  [[nodiscard]] const std::string& metric() const noexcept { return metric_; }

  /// The metric's value; none, with one warning, where the logs lack it.
  [[nodiscard]] std::optional<double> value(const Logs& logs);

  /// Better than `reference` by more than min_delta.
  [[nodiscard]] bool improves(double value, double reference) const noexcept;

  /// Notes the value if it is the best so far.
  bool update(double value) noexcept;
  [[nodiscard]] double best() const noexcept { return best_; }
  void reset() noexcept;

 private:
  std::string metric_;
  bool upward_;
  double min_delta_;
  double best_ = 0;
  bool warned_ = false;
};

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;
  int patience = 0;
  MonitorMode mode = MonitorMode::automatic;
  std::optional<double> baseline = {};
  bool restore_best_weights = false;
  int start_from_epoch = 0;
};

/// Stops when the metric has not improved for `patience` epochs.
class EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;

 private:
  EarlyStoppingOptions options_;
  Monitor monitor_;
  int wait_ = 0;
  std::vector<Variable> best_weights_;
  int best_epoch_ = 0;
};

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;
  int patience = 10;
  MonitorMode mode = MonitorMode::automatic;
  double min_delta = 1e-4;
  int cooldown = 0;
  double min_lr = 0;
};

/// Multiplies the learning rate by `factor` when the metric has not improved for `patience` epochs. Logs learning_rate.
class ReduceLROnPlateau : public Callback {
 public:
  explicit ReduceLROnPlateau(ReduceLROnPlateauOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;

 private:
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  int wait_ = 0;
  int cooldown_left_ = 0;
};

/// Sets the learning rate to schedule(epoch, learning rate) before each epoch. Logs learning_rate.
class LearningRateScheduler : public Callback {
 public:
  using Schedule = std::function<double(int epoch, double learning_rate)>;
  explicit LearningRateScheduler(Schedule schedule) : schedule_(std::move(schedule)) {}
  void on_epoch_begin(Model& model, int epoch) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;

 private:
  Schedule schedule_;
};

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  bool save_best_only = false;
  MonitorMode mode = MonitorMode::automatic;
  std::int64_t save_freq = 0;  ///< in batches; 0: at the end of every epoch
};

/// Saves the model. In the path {epoch} (from 1), {batch} and the names of logs are replaced, with Python's formats for
/// numbers: "model-{epoch:02d}-{val_loss:.2f}.h5". Throws UsageError naming an unknown key.
class ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(std::string filepath, ModelCheckpointOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_begin(Model& model, int epoch) override;
  void on_train_batch_end(Model& model, std::int64_t batch, const StepMetrics& epoch_so_far) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;

 private:
  void save(Model& model, const Logs& logs, std::int64_t batch);

  std::string filepath_;
  ModelCheckpointOptions options_;
  Monitor monitor_;
  int epoch_ = 0;
  std::int64_t batches_ = 0;
};

/// Ends training at a batch whose loss is NaN or infinite, where fit() would otherwise throw DataError.
class TerminateOnNaN : public Callback {
 public:
  void on_train_batch_end(Model& model, std::int64_t batch, const StepMetrics& epoch_so_far) override;
};

struct CSVLoggerOptions {
  char separator = ',';
  bool append = false;
};

/// A line an epoch: the epoch (from 0) and all logs, sorted by name.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(std::filesystem::path filename, CSVLoggerOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;

 private:
  std::filesystem::path filename_;
  CSVLoggerOptions options_;
  std::vector<std::string> keys_;
};

/// "model-{epoch:02d}-{val_loss:.2f}.h5" with the values in their places. Throws UsageError for an unknown key or a
/// format that is not [0][width][.precision][d|f|e|g].
[[nodiscard]] std::string format_path(const std::string& pattern, const Logs& values);

}  // namespace lockstep
