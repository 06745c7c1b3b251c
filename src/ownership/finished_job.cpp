// See finished_job.hpp.
#include "ownership/finished_job.hpp"

#include "core/digest_of_file.hpp"
#include "core/file_system.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

/// The name of the model that the last run saved in the directory, as history.json tells; empty if it is not there.
std::string name_of_saved_model(const fs::path& directory) {
  std::ifstream stream(directory / "history.json", std::ios::binary);
  const nlohmann::json history = nlohmann::json::parse(stream, nullptr, false);
  if (!history.is_object()) return {};
  const auto file = history.find("file");
  std::error_code unknown;
  return file != history.end() && file->is_string() &&
                 fs::exists(directory / file->get_ref<const std::string&>(), unknown)
             ? file->get<std::string>()
             : std::string();
}

}  // namespace

void set_saved_model(DirectoryOwner& owner, const fs::path& directory) {
  owner.model = name_of_saved_model(directory);
  if (owner.outlives_launchers && !owner.model.empty()) owner.model_digest = digest_of_file(directory / owner.model);
}

bool has_finished(const fs::path& directory, const DirectoryOwner& job) {
  const std::optional<DirectoryRecord> record = find_record(directory);
  if (!record) return false;
  const DirectoryOwner& last = record->owner_of_files();
  if (!last.has_finished || last.job != job.job) return false;
  if (const std::string& model = last.model; !model.empty()) {
    std::error_code error;
    const bool is_there = fs::exists(directory / model, error);
    if (error) throw_io_error("cannot read " + (directory / model).string(), error.value());
    if (!is_there) return false;
  }
  const JobContents& contents = last.contents;
  const char* difference = nullptr;
  if (are_known_to_differ(last.command, job.command)) {
    difference = "another command line or other variables";
  } else if (are_known_to_differ(contents.settings, job.contents.settings)) {
    difference = "another model, other data or other settings";
  } else if (are_known_to_differ(contents.origin, job.contents.origin) && !last.has_overwritten_origin) {
    difference = "other initial weights";
  }
  if (difference == nullptr && !last.model_digest.empty() &&
      digest_of_file(directory / last.model) != last.model_digest) {
    throw UsageError(
        fmt::format("job {} has finished, but {} is not the model that it wrote; restore that one, or remove the file "
                    "to train again",
                    printable(job.job), (directory / last.model).string()));
  }
  if (difference == nullptr) return true;
  throw UsageError(
      fmt::format("job {} has finished in {}, but it had {}; name this job otherwise (--job-id, "
                  "LOCKSTEP_JOB_ID)",
                  printable(job.job), directory.string(), difference));
}

}  // namespace lockstep
