// A directory of backups: Keras .h5 files with a training state, named by the fit of the program and the optimizer step
// they were taken at, "fit-1-step-0000000700.h5". A program may call fit several times; a backup belongs to one of
// them.
#pragma once

#include "checkpoint/saved_model.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct BackupName {
  int fit = 1;  ///< counts from 1
  std::uint64_t step = 0;
  friend bool operator==(const BackupName&, const BackupName&) = default;
  friend bool operator<(const BackupName& a, const BackupName& b) noexcept {
    return a.fit != b.fit ? a.fit < b.fit : a.step < b.step;
  }
};

struct FoundBackup {
  std::filesystem::path path;
  SavedModel model;  ///< has a state
};

class BackupDirectory {
 public:
  explicit BackupDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// In order of fits and steps; nothing where there is no such directory. Throws IoError where it cannot be read.
  [[nodiscard]] std::vector<BackupName> list() const;

  /// The newest backup of this fit that is whole. Damaged ones newer than it are reported by `warn`, and renamed to
  /// "....h5.damaged" so that they never count again. Throws DataError where there are backups and all are damaged: to
  /// begin anew is not for us to decide.
  [[nodiscard]] std::optional<FoundBackup> newest(int fit, const std::function<void(const std::string&)>& warn) const;

  /// Writes a backup whole or not at all, then removes all but the newest `keep` of its fit, and all but the newest of
  /// every earlier fit. Throws IoError; the earlier backups are then still there.
  void write(const BackupName& name, const SavedModel& model, int keep) const;

  /// Removes all backups, and the directory if nothing else is in it. What cannot be removed stays.
  void clear() const noexcept;

 private:
  [[nodiscard]] std::filesystem::path file_of(const BackupName& name) const;

  std::filesystem::path path_;
};

}  // namespace lockstep
