// See newest_model.hpp.
#include "checkpoint/newest_model.hpp"

#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/model_file.hpp"
#include "core/file_system.hpp"

#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

/// Since 1970. A time before 1970 counts as 1970: as a number without a sign it would be the latest.
std::uint64_t milliseconds_of(const timespec& time) {
  const auto seconds = static_cast<std::uint64_t>(std::max<std::int64_t>(time.tv_sec, 0));
  return seconds * 1000 + static_cast<std::uint64_t>(time.tv_nsec) / 1'000'000;
}

std::optional<ModelVersion> version_of(const fs::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  // A file that is dated in the future would hide each later one. Its last change (ctime) cannot be set.
  return ModelVersion{.file = file,
                      .time_ms = std::min(milliseconds_of(status.st_mtim), milliseconds_of(status.st_ctim)),
                      .inode = status.st_ino,
                      .bytes = static_cast<std::uint64_t>(status.st_size)};
}

bool is_whole_model(const fs::path& file) {
  return !file.filename().string().starts_with('.') && is_model_file_name(file) &&
         model_format_of(file) != ModelFormat::weights && !is_backup_name(file);
}

/// Its entries; none if it does not exist.
fs::directory_iterator open_directory(const fs::path& directory) {
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  if (error && error.value() != ENOENT) throw_io_error("cannot read " + directory.string(), error.value());
  return entries;
}

/// The newest first.
template <typename Predicate>
std::vector<ModelVersion> files_in(const fs::path& directory, const Predicate& is_wanted) {
  std::vector<ModelVersion> found;
  for (const fs::directory_entry& entry : open_directory(directory)) {
    if (!is_wanted(entry.path())) continue;
    if (std::optional<ModelVersion> version = version_of(entry.path())) found.push_back(std::move(*version));
  }
  const auto age = [](const ModelVersion& version) { return std::tie(version.time_ms, version.file); };
  std::ranges::sort(found, std::ranges::greater(), age);
  return found;
}

std::optional<ModelVersion> first_of(const std::vector<ModelVersion>& versions) {
  return versions.empty() ? std::nullopt : std::optional(versions.front());
}

}  // namespace

std::vector<NumberedDirectory> numbered_directories(const fs::path& directory) {
  std::vector<NumberedDirectory> found;
  std::error_code error;
  for (const fs::directory_entry& entry : open_directory(directory)) {
    const std::string name = entry.path().filename().string();
    std::uint64_t number = 0;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (problem == std::errc() && end == name.data() + name.size() && entry.is_directory(error))
      found.push_back({number, entry.path()});
  }
  std::ranges::sort(found, {}, &NumberedDirectory::number);
  return found;
}

std::vector<ModelVersion> models_of(const fs::path& path) {
  std::vector<ModelVersion> found;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    found = files_in(path, is_whole_model);
    if (!found.empty()) return found;
    const std::vector<NumberedDirectory> versions = numbered_directories(path);
    // NOLINTNEXTLINE(modernize-loop-convert): clang 14 cannot compile std::views::reverse of libstdc++
    for (auto version = versions.rbegin(); version != versions.rend(); ++version)
      std::ranges::move(files_in(version->path, is_whole_model), std::back_inserter(found));
    return found;
  }
  if (error && error.value() != ENOENT) throw_io_error("cannot read " + path.string(), error.value());
  if (std::optional<ModelVersion> version = version_of(path)) found.push_back(std::move(*version));
  return found;
}

std::optional<ModelVersion> newest_model(const fs::path& path) { return first_of(models_of(path)); }

std::optional<ModelVersion> newest_backup(const fs::path& directory) {
  return first_of(files_in(directory, is_backup_name));
}

}  // namespace lockstep
