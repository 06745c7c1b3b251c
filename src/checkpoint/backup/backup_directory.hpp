// A directory of backups: Keras .h5 files with a training state, named by the program's call of fit and the optimizer
// step, "fit-1-step-0000000700.h5". A program may call fit several times; a backup belongs to one call.
#pragma once

#include "checkpoint/model_data.hpp"
#include "ownership/write_guard.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct BackupName {
  int fit = 1;  ///< the program's first call of fit is 1
  std::uint64_t step = 0;
  friend bool operator==(const BackupName&, const BackupName&) = default;
  friend bool operator<(const BackupName& a, const BackupName& b) noexcept {
    return a.fit != b.fit ? a.fit < b.fit : a.step < b.step;
  }
};

/// Whether a file's name is that of a backup. Those are removed when a job has ended.
[[nodiscard]] bool is_backup_name(const std::filesystem::path& file);

struct LoadedBackup {
  std::filesystem::path path;
  ModelData model;  ///< with compile and training state
};

class BackupDirectory {
 public:
  explicit BackupDirectory(std::filesystem::path path, WriteGuard guard = require_not_owned_by_another)
      : path_(std::move(path)), guard_(std::move(guard)) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  [[nodiscard]] std::filesystem::path file_of(const BackupName& name) const;

  /// All backups, sorted by fit and step; empty if the directory does not exist. Throws IoError if it cannot be read.
  [[nodiscard]] std::vector<BackupName> list() const;

  /// Loads the newest usable backup of this fit; nullopt if the fit has no backup. `check` throws DataError for one
  /// that cannot be used. Reports newer ones that are damaged, unusable or unreadable through `warn`; the damaged and
  /// unusable ones are renamed to "....h5.damaged", so that later starts ignore them. If none is usable,
  /// but a later fit has backups, this fit can train again, and nullopt is returned; else throws DataError, since only
  /// the user may decide to start over, and IoError if the only others cannot be read.
  [[nodiscard]] std::optional<LoadedBackup> newest(int fit, const std::function<void(const LoadedBackup&)>& check,
                                                   const std::function<void(const std::string&)>& warn) const;

  /// Writes a backup atomically. Then removes all but the newest `keep` backups of its fit, and all but the newest one
  /// of each earlier fit. Throws IoError if writing fails, and what the guard throws; all earlier backups then remain.
  void write(const BackupName& name, const ModelData& model, int keep) const;

  /// Removes all backups of each fit that are older than its newest whole one. Returns how many. Ignores errors.
  [[nodiscard]] std::size_t remove_older() const noexcept;

  /// Removes all backups, and the directory if it is then empty. Returns false if a backup is left, because it cannot
  /// be removed or the guard refuses.
  [[nodiscard]] bool clear() const noexcept;

  /// Removes the directory if it is empty. Ignores errors.
  void remove_if_empty() const noexcept;

 private:
  void remove(const BackupName& name) const;
  void set_aside(const std::filesystem::path& damaged) const;

  std::filesystem::path path_;
  WriteGuard guard_;
};

}  // namespace lockstep
