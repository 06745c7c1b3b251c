// Keras' TensorBoard callback.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/metric_sums.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>

namespace lockstep {

class EventFileWriter;

struct TensorBoardOptions {
  std::filesystem::path log_dir = "logs";
  std::variant<std::string, std::int64_t> update_freq = "epoch";  ///< "batch" or a number of batches adds batch_ curves
};

/// Writes every epoch's logs and learning rate to `log_dir`/train, and validation metrics to `log_dir`/validation.
/// `tensorboard --logdir logs` shows both, also during training. Each fit() writes new files; a resumed one
/// continues its own. The tags are Keras':
/// epoch_loss (the step is the epoch, from 0), batch_loss (the step counts the batches of this fit(), from 1; the value
/// is the epoch's mean so far), evaluation_loss_vs_iterations (the step counts optimizer steps). Throws UsageError for
/// any other update_freq, IoError if it cannot write.
class TensorBoard : public Callback {
 public:
  explicit TensorBoard(TensorBoardOptions options = {});
  TensorBoard(TensorBoard&&) noexcept;
  TensorBoard& operator=(TensorBoard&&) noexcept;
  ~TensorBoard() override;

  void on_train_begin(Model& model) override;
  void on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& epoch_so_far) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  void on_train_end(Model& model) override;
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(const CallbackState& state) override;

 private:
  std::filesystem::path log_dir_;
  std::int64_t batches_per_update_;  ///< 0: epochs only
  std::int64_t batches_ = 0;
  std::unique_ptr<EventFileWriter> train_;  ///< on the chief during training, else null
  std::unique_ptr<EventFileWriter> validation_;
};

}  // namespace lockstep
