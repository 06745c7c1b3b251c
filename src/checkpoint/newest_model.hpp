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

/// The newest .keras, .h5 or .hdf5 file in a directory that is neither weights alone nor a backup, or else the newest
/// in the highest of its numbered directories that has one; or the file, if `path` is one. None if there is none yet.
/// Throws IoError if the path cannot be read.
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
