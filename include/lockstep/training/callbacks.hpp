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

  /// What a backup keeps of this callback, and what a run that goes on gives back to it, after on_train_begin.
  [[nodiscard]] virtual CallbackState save_state() const { return {}; }
  virtual void restore_state(Model& /*model*/, const CallbackState& /*state*/) {}
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
  void set_best(double best) noexcept { best_ = best; }
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
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(Model& model, const CallbackState& state) override;

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
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(Model& model, const CallbackState& state) override;

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

struct BackupOptions {
  static constexpr std::int64_t every_epoch = 0;
  static constexpr std::int64_t never = -1;

  std::int64_t save_freq = every_epoch;  ///< else after every so many optimizer steps
  int keep = 2;                          ///< the newest so many stay
};

/// Keeps backups of everything that training needs to go on as if it had not stopped: a run that was killed and is
/// started again with the same number of workers ends with the same bits. What becomes of backups found at the start,
/// --resume says. They are removed when the program ends without an error. A backup is a Keras .h5 file as well.
class BackupAndRestore : public Callback {
 public:
  explicit BackupAndRestore(std::filesystem::path backup_dir, BackupOptions options = {});
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }
  [[nodiscard]] const BackupOptions& options() const noexcept { return options_; }

 private:
  std::filesystem::path directory_;  // the loop that calls callbacks does the rest: it alone knows where it stands
  BackupOptions options_;
};

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  bool save_best_only = false;
  MonitorMode mode = MonitorMode::automatic;
  std::int64_t save_freq = 0;  ///< in batches; 0: at the end of every epoch
};

/// Saves the model, beside training (see Model::save_later). In the path {epoch} (from 1), {batch} and the names of
/// logs are replaced, with Python's formats for numbers: "model-{epoch:02d}-{val_loss:.2f}.h5". Throws UsageError
/// naming an unknown key.
class ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(std::string filepath, ModelCheckpointOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_begin(Model& model, int epoch) override;
  void on_train_batch_end(Model& model, std::int64_t batch, const StepMetrics& epoch_so_far) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(Model& model, const CallbackState& state) override;

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
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(Model& model, const CallbackState& state) override;

 private:
  std::filesystem::path filename_;
  CSVLoggerOptions options_;
  bool begun_ = false;  ///< whether the file is this training's already
  std::vector<std::string> keys_;
};

/// "model-{epoch:02d}-{val_loss:.2f}.h5" with the values in their places. Throws UsageError for an unknown key or a
/// format that is not [0][width][.precision][d|f|e|g].
[[nodiscard]] std::string format_path(const std::string& pattern, const Logs& values);

}  // namespace lockstep
