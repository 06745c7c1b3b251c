// See backup_directory.hpp.
#include "checkpoint/backup/backup_directory.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/keras/keras_h5.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

std::string text_of(const BackupName& name) { return fmt::format("fit-{}-step-{:010}.h5", name.fit, name.step); }

/// Returns nullopt for names that text_of() does not produce.
std::optional<BackupName> parse(const std::string& text) {
  BackupName name;
  if (std::sscanf(text.c_str(), "fit-%d-step-%" SCNu64 ".h5", &name.fit, &name.step) != 2) {  // NOLINT(cert-err34-c)
    return std::nullopt;
  }
  // sscanf accepts more than text_of() produces, such as signs and spaces.
  return text_of(name) == text ? std::optional(name) : std::nullopt;
}

}  // namespace

bool is_backup_name(const fs::path& file) { return parse(file.filename().string()).has_value(); }

namespace {

void remove_abandoned_backups(const fs::path& directory) {
  remove_abandoned_files(directory, [](std::string_view name) { return parse(std::string(name)).has_value(); });
}

bool is_whole(const fs::path& backup) {
  try {
    return load_keras_h5(backup).training_state.has_value();
  } catch (const Error&) {  // damaged, or not readable now
    return false;
  }
}

}  // namespace

fs::path BackupDirectory::file_of(const BackupName& name) const { return path_ / text_of(name); }

/// Throws what the guard throws. A backup that cannot be removed stays.
void BackupDirectory::remove(const BackupName& name) const {
  const fs::path file = file_of(name);
  if (guard_) guard_(file);
  std::error_code stays;
  fs::remove(file, stays);
}

/// Gives a damaged backup another name, by which it is no backup. Throws what the guard throws.
void BackupDirectory::set_aside(const fs::path& damaged) const {
  if (guard_) guard_(damaged);
  std::error_code ignored;
  fs::rename(damaged, damaged.string() + ".damaged", ignored);
}

std::vector<BackupName> BackupDirectory::list() const {
  std::vector<BackupName> names;
  std::error_code error;
  if (!fs::exists(path_, error) && !error) return names;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const auto name = parse(entry->path().filename().string());
    if (name && entry->is_regular_file(unknown)) names.push_back(*name);
  }
  if (error) {
    throw IoError(fmt::format("cannot read the backup directory {}: {}; check the path and its permissions",
                              path_.string(), error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<LoadedBackup> BackupDirectory::newest(int fit, const std::function<void(const LoadedBackup&)>& check,
                                                    const std::function<void(const std::string&)>& warn) const {
  remove_abandoned_backups(path_);
  std::vector<BackupName> names = list();
  std::erase_if(names, [fit](const BackupName& name) { return name.fit != fit; });
  std::reverse(names.begin(), names.end());
  std::vector<fs::path> damaged;
  std::string problem;
  std::optional<IoError> unreadable;
  for (const BackupName& name : names) {
    const fs::path file = file_of(name);
    try {
      LoadedBackup backup{file, load_keras_h5(file)};
      if (!backup.model.training_state || !backup.model.compile_state)
        throw DataError(fmt::format("{} holds a model but no training state", file.string()));
      check(backup);
      for (const fs::path& bad : damaged) set_aside(bad);
      return backup;
    } catch (const DataError& error) {
      problem = error.what();
      warn("skipping a damaged backup: " + problem);
      damaged.push_back(file);
    } catch (const IoError& error) {  // it may be readable again later, so it keeps its name
      warn(fmt::format("skipping a backup that cannot be read: {}", error.what()));
      if (!unreadable) unreadable = error;
    }
  }
  if (unreadable) throw IoError(*unreadable);
  if (damaged.empty()) return std::nullopt;
  const auto is_later = [fit](const BackupName& name) { return name.fit > fit; };
  if (std::ranges::any_of(list(), is_later)) {
    for (const fs::path& bad : damaged) set_aside(bad);
    warn(fmt::format("{} holds no whole backup of fit {}, so it trains again; the next fit goes on from its backup",
                     path_.string(), fit));
    return std::nullopt;
  }
  throw DataError(
      fmt::format("all backups in {} are damaged ({}); restore a copy of one, or start over with --resume "
                  "never",
                  path_.string(), problem));
}

void BackupDirectory::write(const BackupName& name, const ModelData& model, int keep) const {
  save_keras_h5(file_of(name), model, guard_);
  int newer = 0;  // backups of the same fit that are newer than `other`
  int fit = name.fit;
  std::vector<BackupName> names = list();
  std::reverse(names.begin(), names.end());
  for (const BackupName& other : names) {
    if (other.fit > name.fit) continue;
    if (other.fit != fit) newer = 0;
    fit = other.fit;
    if (newer++ < (fit == name.fit ? keep : 1)) continue;
    remove(other);
  }
}

std::size_t BackupDirectory::remove_older() const noexcept {
  std::size_t removed = 0;
  try {
    std::vector<BackupName> names = list();
    std::reverse(names.begin(), names.end());
    int fit_with_whole_backup = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const BackupName& name = names[i];
      std::error_code unknown;
      if (name.fit == fit_with_whole_backup) {
        remove(name);
        removed += fs::exists(file_of(name), unknown) ? 0 : 1;
      } else if (i + 1 < names.size() && names[i + 1].fit == name.fit && is_whole(file_of(name))) {
        fit_with_whole_backup = name.fit;
      }
    }
  } catch (const std::exception&) {  // the directory cannot be read
    return removed;
  }
  return removed;
}

bool BackupDirectory::clear() const noexcept {
  try {
    for (const BackupName& name : list()) remove(name);
    remove_abandoned_backups(path_);
    remove_if_empty();
    return list().empty();
  } catch (const std::exception&) {  // the directory cannot be read, or is not the writer's
    return false;
  }
}

void BackupDirectory::remove_if_empty() const noexcept {
  std::error_code stays;
  if (!fs::is_symlink(path_, stays)) fs::remove(path_, stays);  // a link is the user's
}

}  // namespace lockstep
