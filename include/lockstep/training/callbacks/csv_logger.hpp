// Keras' CSVLogger.
#pragma once

#include <lockstep/training/callbacks/callback.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct CSVLoggerOptions {
  char separator = ',';
  bool append = false;
};

/// Writes one line an epoch: the epoch (from 0) and all logs, sorted by name.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(std::filesystem::path filename, CSVLoggerOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(const CallbackState& state) override;

 private:
  std::filesystem::path filename_;
  CSVLoggerOptions options_;
  bool is_chief_ = false;  ///< set by on_train_begin
  bool begun_ = false;     ///< whether the file holds lines of this training
  std::vector<std::string> keys_;
};

}  // namespace lockstep
