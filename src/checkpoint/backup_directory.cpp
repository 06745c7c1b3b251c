// See backup_directory.hpp.
#include "checkpoint/backup_directory.hpp"

#include "checkpoint/keras_h5.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

std::string text_of(const BackupName& name) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "fit-%d-step-%010" PRIu64 ".h5", name.fit, name.step);
  return text.data();
}

/// Nothing where somebody else named the file.
std::optional<BackupName> parse(const std::string& text) {
  BackupName name;
  if (std::sscanf(text.c_str(), "fit-%d-step-%" SCNu64 ".h5", &name.fit, &name.step) != 2) {  // NOLINT(cert-err34-c)
    return std::nullopt;
  }
  // What sscanf reads too generously does not come back as the same text.
  return text_of(name) == text ? std::optional(name) : std::nullopt;
}

/// Of a backup that a killed process was writing. At a start nobody writes here, so none is in use.
bool is_leftover(const std::string& text) { return text.starts_with(".fit-") && text.ends_with(".tmp"); }

void remove_leftovers(const fs::path& directory) {
  std::error_code stays;
  for (fs::directory_iterator entry(directory, stays), end; !stays && entry != end; entry.increment(stays)) {
    std::error_code ignored;
    if (is_leftover(entry->path().filename().string())) fs::remove(entry->path(), ignored);
  }
}

}  // namespace

fs::path BackupDirectory::file_of(const BackupName& name) const { return path_ / text_of(name); }

std::vector<BackupName> BackupDirectory::list() const {
  std::vector<BackupName> names;
  std::error_code error;
  if (!fs::exists(path_, error) && !error) return names;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto name = parse(entry->path().filename().string())) names.push_back(*name);
  }
  if (error) throw IoError("Cannot read the directory of backups " + path_.string() + ": " + error.message() + ".");
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<FoundBackup> BackupDirectory::newest(int fit, const std::function<void(const std::string&)>& warn) const {
  remove_leftovers(path_);
  std::vector<BackupName> names = list();
  std::erase_if(names, [fit](const BackupName& name) { return name.fit != fit; });
  std::reverse(names.begin(), names.end());
  std::vector<fs::path> damaged;
  std::string problem;
  for (const BackupName& name : names) {
    const fs::path file = file_of(name);
    try {
      SavedModel model = load_keras_h5(file);
      if (!model.state || !model.training) throw DataError(file.string() + " holds a model, but no training state.");
      for (const fs::path& bad : damaged) {
        std::error_code kept_as_it_is;
        fs::rename(bad, bad.string() + ".damaged", kept_as_it_is);
      }
      return FoundBackup{file, std::move(model)};
    } catch (const DataError& error) {
      problem = error.what();
      warn("a backup is damaged and passed over: " + problem);
      damaged.push_back(file);
    }
  }
  if (damaged.empty()) return std::nullopt;
  throw DataError("All backups in " + path_.string() + " are damaged (" + problem +
                  "); restore one of them from elsewhere, or begin anew with --resume never.");
}

void BackupDirectory::write(const BackupName& name, const SavedModel& model, int keep) const {
  save_keras_h5(file_of(name), model);
  int newer = 0;  // backups of the same fit that are newer than the one looked at
  int fit = name.fit;
  std::vector<BackupName> names = list();
  std::reverse(names.begin(), names.end());
  for (const BackupName& other : names) {
    if (other.fit > name.fit) continue;
    if (other.fit != fit) newer = 0;
    fit = other.fit;
    if (newer++ < (fit == name.fit ? keep : 1)) continue;
    std::error_code stays;
    fs::remove(file_of(other), stays);
  }
}

void BackupDirectory::clear() const noexcept {
  try {
    std::error_code stays;
    for (const BackupName& name : list()) fs::remove(file_of(name), stays);
    remove_leftovers(path_);
    fs::remove(path_, stays);        // only where it is empty
  } catch (const std::exception&) {  // it cannot be read, so there is nothing we could remove
    return;
  }
}

}  // namespace lockstep
