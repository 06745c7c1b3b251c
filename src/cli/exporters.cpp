// See exporters.hpp.
#include "cli/exporters.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/file_system.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20U;

void copy_durably(const fs::path& from, const fs::path& target) {
  std::ifstream source(from, std::ios::binary);
  if (!source) throw_io_error("cannot read " + from.string(), errno);
  AtomicFile file(target);
  std::vector<char> piece(piece_bytes);
  while (source.read(piece.data(), static_cast<std::streamsize>(piece.size())) || source.gcount() > 0)
    file.write(std::as_bytes(std::span(piece).first(static_cast<std::size_t>(source.gcount()))));
  if (source.bad()) throw_io_error("cannot read " + from.string(), errno);
  file.commit();
}

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

/// Whether the highest version is this model's.
bool is_exported(const std::vector<NumberedDirectory>& versions, const ModelVersion& version) {
  if (versions.empty()) return false;
  const std::optional<ModelVersion> highest = newest_model(versions.back().path);
  return highest && highest->time_ms == version.time_ms && highest->bytes == version.bytes;
}

}  // namespace

void export_model(const ExportSettings& settings, Exporter exporter, const ModelVersion& version,
                  const fs::path& file) {
  if (std::ranges::find(settings.exporters, exporter) == settings.exporters.end()) return;
  const fs::path all = settings.directory / enum_name(exporter);
  const std::vector<NumberedDirectory> versions = numbered_directories(all);
  if (is_exported(versions, version)) return;
  // The highest number, also after a clock that was ahead: it is the one that is served and kept.
  const std::uint64_t number =
      versions.empty() ? version.time_ms : std::max(version.time_ms, versions.back().number + 1);
  const fs::path target = all / std::to_string(number) / ("model" + version.file.extension().string());
  create_directories_durably(target.parent_path());
  copy_durably(file, target);
  set_time(target, version.time_ms);
  remove_all_but(all, settings.kept);
}

}  // namespace lockstep
