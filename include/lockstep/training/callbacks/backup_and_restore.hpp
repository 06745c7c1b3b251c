// Keras' BackupAndRestore, for runs that are killed and started again.
#pragma once

#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/options.hpp>

#include <cstdint>
#include <filesystem>

namespace lockstep {

struct BackupOptions {
  static constexpr std::int64_t every_epoch = 0;
  static constexpr std::int64_t never = -1;

  std::int64_t save_freq = every_epoch;  ///< every_epoch, never, or a number of optimizer steps
  int keep = 2;                          ///< how many backups to keep; older ones are deleted
};

/// Backs up everything that training needs to resume: a killed run that is started again with the same number of
/// workers ends with the same bits as an uninterrupted run. --resume says what happens to backups found at the start.
/// They are removed when the program ends without an error. A backup is also a Keras .h5 file.
class BackupAndRestore : public Callback {
 public:
  explicit BackupAndRestore(std::filesystem::path backup_dir, BackupOptions options = {});
  /// Takes --backup-dir and --backup-save-freq from the options.
  explicit BackupAndRestore(const Options& options)
      : BackupAndRestore(options.backup_dir, {.save_freq = options.backup_save_freq}) {}
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }
  [[nodiscard]] const BackupOptions& options() const noexcept { return options_; }
  [[nodiscard]] const BackupAndRestore* backups() const noexcept override { return this; }

 private:
  std::filesystem::path directory_;
  BackupOptions options_;
};

}  // namespace lockstep
