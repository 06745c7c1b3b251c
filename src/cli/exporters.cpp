// See exporters.hpp.
#include "cli/exporters.hpp"

#include "checkpoint/atomic_file.hpp"
#include "cli/copy_durably.hpp"
#include "cli/evaluator_lock.hpp"
#include "core/file_system.hpp"
#include "core/printable.hpp"
#include "core/publish_directory.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view temporary_prefix = ".exporting-";

/// A server tells versions by the time of their files.
void set_time(const fs::path& file, std::uint64_t time_ms) {
  using std::chrono::file_clock;
  const std::chrono::sys_time<std::chrono::milliseconds> time{std::chrono::milliseconds(time_ms)};
  std::error_code unknown;  // of a volume that sets times itself
  fs::last_write_time(file, std::chrono::time_point_cast<file_clock::duration>(file_clock::from_sys(time)), unknown);
}

/// As in an evaluator's evaluation.json.
Json to_json(const Logs& scores, std::optional<double> input_scale) {
  Json written = Json::object();
  if (input_scale) written[input_scale_key] = *input_scale;
  for (const auto& [name, value] : scores) written[name] = std::isfinite(value) ? Json(value) : Json();
  return written;
}

/// Removes the temporary directories of exporters that were interrupted.
void remove_unfinished(const fs::path& directory) {
  std::error_code unknown;  // one that stays is removed the next time
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

/// The highest number, also after a clock that was ahead: it is the one that is served and kept.
std::uint64_t next_number(const std::vector<NumberedDirectory>& versions, const ModelVersion& version) {
  if (versions.empty()) return version.time_ms;
  const NumberedDirectory& highest = versions.back();
  if (highest.number == std::numeric_limits<std::uint64_t>::max()) {
    throw IoError(fmt::format("{} has the highest number that there is, so no version can follow; move it away",
                              highest.path.string()));
  }
  return std::max(version.time_ms, highest.number + 1);
}

}  // namespace

Exports::Exports(ExportSettings settings, const fs::path& model_directory) : settings_(std::move(settings)) {
  if (settings_.exporters.empty()) return;
  create_directories_durably(settings_.directory);
  job_ = fs::proximate(fs::weakly_canonical(model_directory), fs::canonical(settings_.directory)).string();
  lock_ = lock_for_evaluator(settings_.directory, "exports to", "--export-dir");
  read();
  write();  // now, because the first model may come after hours
}

void Exports::read() {
  std::ifstream stream(file(), std::ios::binary);
  if (!stream) return;
  std::string job;
  try {
    const Json earlier = Json::parse(stream);
    job = earlier.at("job").get<std::string>();
    for (const auto& [exporter, name] : EnumNames<Exporter>::all)
      written_[exporter] = earlier.at("versions").value(std::string(name), Numbers());
  } catch (const Json::exception&) {
    throw DataError(file().string() + " is damaged; remove it, or give another --export-dir");
  }
  if (job == job_) return;
  throw UsageError(fmt::format("{} holds models of the job in {}; give another --export-dir, or remove {}",
                               settings_.directory.string(),
                               printable((settings_.directory / job).lexically_normal().string()), file().string()));
}

void Exports::write() const {
  Json versions = Json::object();
  for (const auto& [exporter, numbers] : written_) versions[std::string(enum_name(exporter))] = numbers;
  const std::string text =
      Json{{"job", job_}, {"versions", versions}}.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  write_file_atomically(file(), std::as_bytes(std::span(text)));
}

void Exports::remove_all_but_newest(Exporter exporter) {
  Numbers& numbers = written_[exporter];
  if (numbers.size() <= settings_.kept) return;
  const auto first_kept = numbers.end() - static_cast<std::ptrdiff_t>(settings_.kept);
  std::error_code unknown;  // one that stays is the user's from now on
  for (auto number = numbers.begin(); number != first_kept; ++number)
    fs::remove_all(settings_.directory / enum_name(exporter) / std::to_string(*number), unknown);
  numbers.erase(numbers.begin(), first_kept);
  write();
}

void Exports::add(Exporter exporter, const ModelVersion& version, const Logs& scores) {
  if (std::ranges::find(settings_.exporters, exporter) == settings_.exporters.end()) return;
  const fs::path all = settings_.directory / enum_name(exporter);
  create_directories_durably(all);
  remove_unfinished(all);
  const std::vector<NumberedDirectory> versions = numbered_directories(all);
  if (is_exported(versions, version)) return;
  const std::uint64_t number = next_number(versions, version);
  Numbers& written = written_[exporter];
  const fs::path temporary = all / (std::string(temporary_prefix) + std::to_string(number));
  try {
    fs::create_directory(temporary);
    const fs::path copy = temporary / ("model" + version.file.extension().string());
    copy_durably(version.file, copy);
    set_time(copy, version.time_ms);
    const std::string text = to_json(scores, input_scale_).dump(1) + "\n";
    write_file_atomically(temporary / "evaluation.json", std::as_bytes(std::span(text)));
    written.push_back(number);
    write();  // first, so that a version of this job is never taken for the user's
    publish_directory(temporary, all / std::to_string(number));
  } catch (const std::exception&) {
    std::error_code unknown;
    fs::remove_all(temporary, unknown);
    std::erase(written, number);
    throw;
  }
  remove_all_but_newest(exporter);
}

}  // namespace lockstep
