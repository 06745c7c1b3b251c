// See newest_model.hpp.
#include "checkpoint/newest_model.hpp"

#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/model_file.hpp"
#include "core/file_system.hpp"

#include <sys/stat.h>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

std::optional<ModelVersion> version_of(const fs::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto seconds = static_cast<std::uint64_t>(status.st_mtim.tv_sec);
  const auto nanoseconds = static_cast<std::uint64_t>(status.st_mtim.tv_nsec);
  return ModelVersion{.file = file,
                      .time_ms = seconds * 1000 + nanoseconds / 1'000'000,
                      .inode = status.st_ino,
                      .bytes = static_cast<std::uint64_t>(status.st_size)};
}

bool is_whole_model(const fs::path& file) {
  return !file.filename().string().starts_with('.') && is_model_file_name(file) &&
         model_format_of(file) != ModelFormat::weights && !is_backup_name(file);
}

template <typename Predicate>
std::optional<ModelVersion> newest_in(const fs::path& directory, const Predicate& is_wanted) {
  std::error_code error;
  std::optional<ModelVersion> newest;
  fs::directory_iterator entries(directory, error);
  if (error.value() == ENOENT) return std::nullopt;
  if (error) throw_io_error("cannot read " + directory.string(), error.value());
  for (const fs::directory_entry& entry : entries) {
    if (!is_wanted(entry.path())) continue;
    const std::optional<ModelVersion> found = version_of(entry.path());
    const auto age = [](const ModelVersion& version) { return std::tie(version.time_ms, version.file); };
    if (found && (!newest || age(*newest) < age(*found))) newest = found;
  }
  return newest;
}

}  // namespace

std::optional<ModelVersion> newest_model(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return newest_in(path, is_whole_model);
  if (error && error.value() != ENOENT) throw_io_error("cannot read " + path.string(), error.value());
  return version_of(path);
}

std::optional<ModelVersion> newest_backup(const fs::path& directory) { return newest_in(directory, is_backup_name); }

}  // namespace lockstep
