// See directory_record.hpp.
#include "ownership/directory_record.hpp"

#include "core/digest.hpp"
#include "core/file_system.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr std::size_t max_record_bytes = 4096;

/// What the file holds, as JSON; null if it holds nothing. A record that is just being written is read again.
nlohmann::json read_json(const FileDescriptor& file, const fs::path& path) {
  constexpr int attempts = 10;
  constexpr std::chrono::milliseconds pause{10};
  for (int attempt = 1;; ++attempt) {
    std::array<char, max_record_bytes> bytes{};
    const ssize_t size = pread(file.number(), bytes.data(), bytes.size(), 0);
    if (size < 0) throw_io_error("cannot read " + path.string(), errno);
    const std::string_view text(bytes.data(), static_cast<std::size_t>(size));
    if (text.find_first_not_of(std::string_view(" \n\0", 3)) == std::string_view::npos) return nullptr;
    nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_object()) return json;
    if (attempt == attempts) break;
    std::this_thread::sleep_for(pause);
  }
  throw DataError(path.string() +
                  " is damaged: it is not the record of a job; remove it if no job uses this directory any more");
}

std::string text_of(const nlohmann::json& json, const char* key) {
  const auto value = json.find(key);
  return value != json.end() && value->is_string() ? value->get<std::string>() : std::string();
}

std::uint64_t number_of(const nlohmann::json& json, const char* key) {
  const auto value = json.find(key);
  return value != json.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
}

bool flag_of(const nlohmann::json& json, const char* key) {
  const auto value = json.find(key);
  return value != json.end() && *value == true;
}

DirectoryOwner owner_from(const nlohmann::json& json) {
  return {.job = text_of(json, "job"),
          .command = text_of(json, "command"),
          .contents = {.settings = text_of(json, "settings"), .origin = text_of(json, "origin")},
          .launch = text_of(json, "launch"),
          .generation = number_of(json, "generation"),
          .program = text_of(json, "program"),
          .host = text_of(json, "host"),
          .has_begun = flag_of(json, "has_begun"),
          .has_finished = flag_of(json, "has_finished"),
          .model = text_of(json, "model"),
          .model_digest = text_of(json, "model_digest"),
          .has_overwritten_origin = flag_of(json, "has_overwritten_origin"),
          .nonfinite_step = number_of(json, "nonfinite_step"),
          .parallelism = text_of(json, "parallelism"),
          .training = text_of(json, "training")};
}

nlohmann::json to_json(const DirectoryOwner& owner) {
  return {{"job", owner.job},
          {"command", owner.command},
          {"settings", owner.contents.settings},
          {"origin", owner.contents.origin},
          {"launch", owner.launch},
          {"generation", owner.generation},
          {"program", owner.program},
          {"host", owner.host},
          {"has_begun", owner.has_begun},
          {"has_finished", owner.has_finished},
          {"model", owner.model},
          {"model_digest", owner.model_digest},
          {"has_overwritten_origin", owner.has_overwritten_origin},
          {"nonfinite_step", owner.nonfinite_step},
          {"parallelism", owner.parallelism},
          {"training", owner.training}};
}

}  // namespace

fs::path record_file_in(const fs::path& directory) { return directory / ".lockstep.lock"; }

std::string digest_of_path(const fs::path& directory) {
  std::error_code unknown;  // the working directory was removed
  const fs::path absolute = fs::absolute(directory, unknown);
  return to_hex(fnv1a((unknown ? directory : absolute.lexically_normal()).native()));
}

bool has_files(const DirectoryOwner& owner) noexcept {
  return owner.has_begun || owner.has_finished || owner.has_overwritten_origin;
}

std::optional<DirectoryRecord> read_record(const FileDescriptor& file, const fs::path& path) {
  const nlohmann::json json = read_json(file, path);
  if (json.is_null()) return std::nullopt;
  DirectoryRecord record{owner_from(json), text_of(json, "process"), text_of(json, "keeper"),
                         text_of(json, "path_digest"), number_of(json, "directory_inode")};
  if (const auto before = json.find("before"); before != json.end() && before->is_object())
    record.before = owner_from(*before);
  return record;
}

std::optional<DirectoryRecord> find_record(const fs::path& directory) {
  const fs::path path = record_file_in(directory);
  const FileDescriptor file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file.valid()) return read_record(file, path);
  if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) throw_io_error("cannot read " + path.string(), errno);
  return std::nullopt;
}

int write_record(const FileDescriptor& file, const DirectoryRecord& record) {
  nlohmann::json json = to_json(record.owner);
  json["process"] = record.process;
  json["keeper"] = record.keeper;
  json["path_digest"] = record.path_digest;
  json["directory_inode"] = record.directory_inode;
  if (record.before) json["before"] = to_json(*record.before);
  std::string text = json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // Overwrites the bytes of the last record, so that a full disk or a crash leaves the one or the other.
  constexpr std::size_t usual_bytes = 1024;
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return errno;
  const std::size_t size = std::max({usual_bytes, text.size(), static_cast<std::size_t>(status.st_size)});
  text.append(std::min(size, max_record_bytes) > text.size() ? std::min(size, max_record_bytes) - text.size() : 0, ' ');
  const ssize_t written = pwrite(file.number(), text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size())) return written < 0 ? errno : ENOSPC;
  return fsync(file.number()) == 0 ? 0 : errno;
}

std::string describe(const std::optional<DirectoryRecord>& record) {
  if (!record || record->owner.job.empty()) return "another job";
  const DirectoryOwner& owner = record->owner;
  return fmt::format("job {} ({} on {}{})", printable(owner.job), printable(owner.program), printable(owner.host),
                     owner.generation > 0 ? fmt::format(", generation {}", owner.generation) : "");
}

bool are_known_to_differ(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; }

void require_job_id(const std::string& job) {
  constexpr std::size_t max_characters = 256;  // the record of a directory has a bounded length
  const auto is_plain = [](unsigned char c) { return c >= ' ' && c < 0x7f; };
  if (job.size() <= max_characters && std::ranges::all_of(job, is_plain)) return;
  throw UsageError(fmt::format(
      "the job id (--job-id, LOCKSTEP_JOB_ID) is '{}'{}, but must be at most {} characters of ASCII",
      printable(job.substr(0, max_characters)), job.size() > max_characters ? " and more" : "", max_characters));
}

std::string digest_of_command(std::span<const std::string> command) {
  Digest digest;
  for (const std::string& argument : command) digest.add(argument.c_str(), argument.size() + 1);
  return digest.to_string();
}

}  // namespace lockstep
