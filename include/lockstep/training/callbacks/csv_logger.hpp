// Keras' CSVLogger.
#pragma once

#include <lockstep/training/callbacks/callback.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class FileDescriptor;

struct CSVLoggerOptions {
  char separator = ',';
  bool append = false;
};

/// Writes one line an epoch: the epoch (from 0) and the logs of the first epoch, sorted by name; then those of a
/// validation, NA where none ran, as Keras does. Holds the file locked while it trains. Throws PeerError if another
/// process does, UsageError if the file is there and is no such log.
///
/// A resumed run goes on after the lines of the epochs before its backup. It throws UsageError if the file does not
/// begin with them. If the file is empty or gone, a warning says so, and the log begins anew with a header.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(std::filesystem::path filename, CSVLoggerOptions options = {});
  void on_train_begin(Model& model) override;
  void on_epoch_end(Model& model, int epoch, Logs& logs) override;
  void on_train_end(Model& model) override;
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] CallbackState save_state() const override;
  void restore_state(const CallbackState& state) override;

 private:
  /// Adds text to what the file holds.
  void count(std::string_view text) noexcept;

  std::filesystem::path filename_;
  CSVLoggerOptions options_;
  bool is_chief_ = false;  ///< set by on_train_begin
  bool begun_ = false;     ///< whether the file holds lines of this training
  std::vector<std::string> keys_;
  std::uint64_t bytes_ = 0;  ///< of the lines in the file, and their digest; backups hold both
  std::uint64_t digest_ = 0;
  std::shared_ptr<FileDescriptor> lock_;  ///< of the file, on the chief
};

}  // namespace lockstep
