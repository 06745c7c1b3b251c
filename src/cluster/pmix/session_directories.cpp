// See session_directories.hpp.
#include "cluster/pmix/session_directories.hpp"

#include "core/environment.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {

namespace {

constexpr const char* shared_memory = "/dev/shm";
constexpr const char* prefix = "lockstep-world-";
constexpr const char* owner_file = "owner";

/// Makes a directory that only this user can access; returns "" on failure.
std::string make_directory_in(const std::string& parent) {
  std::string path = (std::filesystem::path(parent) / (std::string(prefix) + "XXXXXX")).string();
  return mkdtemp(path.data()) == nullptr ? std::string() : path;
}

/// Locks a new owner file. It has its name only after that, so that nobody finds it unlocked. Empty if the file system
/// knows no locks: then nobody sweeps the directory.
Socket lock_owner_file(const std::string& directory) {
  const std::string name = directory + "/" + owner_file;
  const std::string temporary = name + ".new";
  Socket file(open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file || flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0 || rename(temporary.c_str(), name.c_str()) != 0)
    return {};
  return file;
}

bool is_abandoned(const std::filesystem::path& directory) {
  struct stat status {};
  if (lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid()) return false;
  const auto is_unlocked = [&directory](const std::string& name) {
    const Socket file(open((directory / name).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    return file && flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0;
  };
  if (is_unlocked(owner_file)) return true;
  // A launcher that was killed as it made the directory, or one that removed it, leaves it without an owner.
  constexpr time_t old_s = 60;
  std::error_code unknown;
  if (time(nullptr) < status.st_mtime + old_s || std::filesystem::exists(directory / owner_file, unknown)) return false;
  return std::filesystem::is_empty(directory, unknown) || is_unlocked(std::string(owner_file) + ".new");
}

/// Removes the owner's file last: a removal that is cut off is then done again by the next launch.
void remove_all_but_owner(const std::filesystem::path& directory, std::error_code& error) {
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename() != owner_file) std::filesystem::remove_all(entry->path(), error);
  }
}

}  // namespace

SessionDirectories::SessionDirectories() {
  std::string tried;
  (void)sweep_session_directories(shared_memory);
  for (const std::string& parent :
       {value_of(current_environment(), "TMPDIR"), std::string("/tmp"), std::string(shared_memory)}) {
    if (parent.empty()) continue;
    (void)sweep_session_directories(parent);
    files_ = make_directory_in(parent);
    if (!files_.empty()) break;
    tried += (tried.empty() ? "" : ", ") + parent;
  }
  if (files_.empty()) {
    throw IoError(
        fmt::format("no writable directory for temporary files (tried {}); set TMPDIR, in a pod with a read-only "
                    "root filesystem to an emptyDir",
                    tried));
  }
  memory_ = make_directory_in(shared_memory);
  for (const std::string& directory : {files_, memory_}) {
    if (!directory.empty()) locks_.push_back(lock_owner_file(directory));
  }
}

std::size_t sweep_session_directories(const std::string& parent) noexcept {
  std::size_t swept = 0;
  try {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
         entry.increment(error)) {
      if (!entry->path().filename().string().starts_with(prefix) || !is_abandoned(entry->path())) continue;
      remove_session_directory(entry->path().string());
      ++swept;
    }
  } catch (...) {  // out of memory: the next launch sweeps
  }
  return swept;
}

SessionDirectories::~SessionDirectories() {
  remove_session_directory(files_);
  remove_session_directory(memory_);
}

void remove_session_directory(const std::string& directory) noexcept {
  try {
    const std::filesystem::path path(directory);
    if (!path.is_absolute() || !path.filename().string().starts_with(prefix)) return;
    std::error_code error;
    for (int tries = 0; tries < 2; ++tries) {  // a rank that was just killed may add a file meanwhile
      remove_all_but_owner(path, error);
      if (!error) std::filesystem::remove_all(path, error);
      std::error_code unknown;
      if (!std::filesystem::exists(path, unknown)) return;
    }
    log_warning(fmt::format("cannot delete {}: {}", directory, error.message()));
  } catch (...) {  // out of memory: the directory stays
  }
}

}  // namespace lockstep
