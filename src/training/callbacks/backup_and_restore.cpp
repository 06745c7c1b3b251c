// See backup_and_restore.hpp.
#include <lockstep/core/error.hpp>
#include <lockstep/training/callbacks/backup_and_restore.hpp>

#include <utility>

namespace lockstep {

BackupAndRestore::BackupAndRestore(std::filesystem::path backup_dir, BackupOptions options)
    : directory_(std::move(backup_dir)), options_(options) {
  if (options_.save_freq < BackupOptions::never || options_.keep < 1) {
    throw UsageError(
        "BackupAndRestore needs a save_freq of BackupOptions::every_epoch, never or a number of steps, and keep of at "
        "least 1");
  }
}

}  // namespace lockstep
