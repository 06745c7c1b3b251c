// Finds the newest model in a directory: trainings replace models by whole files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep {

/// A file as it was at one time.
struct ModelVersion {
  std::filesystem::path file;
  /// The version's number: the earlier of its mtime and its ctime, since 1970. A file that is dated in the future is as
  /// new as its last change; a copy that keeps its old time stays old.
  std::uint64_t time_ms = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const ModelVersion&, const ModelVersion&) = default;
};

/// The .keras, .h5 and .hdf5 files in a directory that are neither weights alone nor backups, the newest first. If it
/// has none: those in its numbered directories, the highest number first. If `path` is a file: that file. Reads no
/// file. Throws IoError if the path cannot be read.
[[nodiscard]] std::vector<ModelVersion> models_of(const std::filesystem::path& path);

/// The first of models_of(); none if there is none yet.
[[nodiscard]] std::optional<ModelVersion> newest_model(const std::filesystem::path& path);

/// A directory whose name is a number, as those of exported versions.
struct NumberedDirectory {
  std::uint64_t number = 0;
  std::filesystem::path path;
};

/// The numbered directories in a directory, the lowest number first. Throws IoError if the directory cannot be read.
[[nodiscard]] std::vector<NumberedDirectory> numbered_directories(const std::filesystem::path& directory);

/// The newest backup in a directory; none if there is none. Throws IoError if the directory cannot be read.
[[nodiscard]] std::optional<ModelVersion> newest_backup(const std::filesystem::path& directory);

}  // namespace lockstep
