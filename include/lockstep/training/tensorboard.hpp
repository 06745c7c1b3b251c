// Curves of a training for TensorBoard: Keras' callback of this name.
#pragma once

#include <lockstep/core/history.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/values.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>

namespace lockstep {

class EventFile;  // where the curves go

struct TensorBoardOptions {
  std::filesystem::path log_dir = "logs";
  std::variant<std::string, std::int64_t> update_freq = "epoch";  ///< or "batch", or 100: every 100 batches as well
};

/// Writes every epoch's logs and learning rate to `log_dir`/train and, where there is validation, `log_dir`/validation;
/// `tensorboard --logdir logs` shows both, also while training goes on. Each fit() adds files of its own. The tags are
/// Keras': epoch_loss (steps are epochs, from 0), batch_loss (batches of this fit(), from 1; the epoch's mean so far),
/// evaluation_loss_vs_iterations (optimizer steps). Throws UsageError for another update_freq, IoError where it cannot
/// write.
class TensorBoard : public Callback {
 public:
  explicit TensorBoard(TensorBoardOptions options = {});
  TensorBoard(TensorBoard&&) noexcept;
  TensorBoard& operator=(TensorBoard&&) noexcept;
  ~TensorBoard() override;

  void on_train_begin(Model& model) override;
  void on_train_batch_end(Model& model, std::int64_t batch, const StepMetrics& epoch_so_far) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  void on_train_end(Model& model) override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(Model& model, const CallbackState& state) override;

 private:
  std::filesystem::path log_dir_;
  std::int64_t batches_per_update_;  ///< 0: epochs only
  std::int64_t batches_ = 0;
  std::unique_ptr<EventFile> train_;  ///< on the chief, while it trains
  std::unique_ptr<EventFile> validation_;
};

}  // namespace lockstep
