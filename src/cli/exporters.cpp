// See exporters.hpp.
#include "cli/exporters.hpp"

#include "cli/copy_durably.hpp"
#include "core/file_system.hpp"
#include "core/publish_directory.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

constexpr std::string_view temporary_prefix = ".exporting-";

/// A server tells versions by the time of their files.
void set_time(const fs::path& file, std::uint64_t time_ms) {
  using std::chrono::file_clock;
  const std::chrono::sys_time<std::chrono::milliseconds> time{std::chrono::milliseconds(time_ms)};
  std::error_code unknown;  // of a volume that sets times itself
  fs::last_write_time(file, std::chrono::time_point_cast<file_clock::duration>(file_clock::from_sys(time)), unknown);
}

void remove_all_but(const fs::path& directory, std::size_t kept) {
  std::vector<NumberedDirectory> versions = numbered_directories(directory);
  if (versions.size() <= kept) return;
  versions.resize(versions.size() - kept);
  std::error_code unknown;  // one that stays is removed the next time
  for (const NumberedDirectory& version : versions) fs::remove_all(version.path, unknown);
}

/// Whether an exporter was interrupted before it had written the model: nothing but hidden files is there.
bool is_unfinished(const fs::path& directory) {
  return std::all_of(fs::directory_iterator(directory), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with('.');
  });
}

/// Removes what interrupted exporters have left, so that it neither counts as a version nor takes the place of one.
void remove_unfinished(const fs::path& directory) {
  std::error_code unknown;  // one that stays is removed the next time
  for (const NumberedDirectory& version : numbered_directories(directory)) {
    if (is_unfinished(version.path)) fs::remove_all(version.path, unknown);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(temporary_prefix)) fs::remove_all(entry.path(), unknown);
  }
}

/// Whether the highest version is this model's.
bool is_exported(const std::vector<NumberedDirectory>& versions, const ModelVersion& version) {
  if (versions.empty()) return false;
  const std::optional<ModelVersion> highest = newest_model(versions.back().path);
  return highest && highest->time_ms == version.time_ms && highest->bytes == version.bytes;
}

}  // namespace

void export_model(const ExportSettings& settings, Exporter exporter, const ModelVersion& version) {
  if (std::ranges::find(settings.exporters, exporter) == settings.exporters.end()) return;
  const fs::path all = settings.directory / enum_name(exporter);
  create_directories_durably(all);
  remove_unfinished(all);
  const std::vector<NumberedDirectory> versions = numbered_directories(all);
  if (is_exported(versions, version)) return;
  // The highest number, also after a clock that was ahead: it is the one that is served and kept.
  const std::string number =
      std::to_string(versions.empty() ? version.time_ms : std::max(version.time_ms, versions.back().number + 1));
  const fs::path temporary = all / (std::string(temporary_prefix) + number);
  try {
    fs::create_directory(temporary);
    const fs::path copy = temporary / ("model" + version.file.extension().string());
    copy_durably(version.file, copy);
    set_time(copy, version.time_ms);
    publish_directory(temporary, all / number);
  } catch (const std::exception&) {
    std::error_code unknown;
    fs::remove_all(temporary, unknown);
    throw;
  }
  remove_all_but(all, settings.kept);
}

}  // namespace lockstep
