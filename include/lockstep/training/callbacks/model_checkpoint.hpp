// Keras' ModelCheckpoint.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/callbacks/monitor.hpp>

#include <cstdint>
#include <string>

namespace lockstep {

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  bool save_best_only = false;
  MonitorMode mode = MonitorMode::automatic;
  std::int64_t save_freq = 0;  ///< in batches; 0: at the end of every epoch
};

/// Saves the model in the background (see Model::save_async). The path may contain {epoch} (from 1), {batch} and the
/// names of logs, with Python's number formats: "model-{epoch:02d}-{val_loss:.2f}.h5". Throws UsageError for an unknown
/// key, and names it.
class ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(std::string filepath, ModelCheckpointOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_begin(Model& model, int epoch) override;
  void on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& epoch_so_far) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(const CallbackState& state) override;

 private:
  void save(Model& model, const Logs& logs, std::int64_t batch);

  std::string filepath_;
  ModelCheckpointOptions options_;
  Monitor monitor_;
  int epoch_ = 0;
  std::int64_t batches_ = 0;
};

/// Replaces the {keys} of "model-{epoch:02d}-{val_loss:.2f}.h5" by values. Throws UsageError for an unknown key or a
/// format other than [0][width][.precision][d|f|e|g].
[[nodiscard]] std::string format_path(const std::string& pattern, const Logs& values);

}  // namespace lockstep
