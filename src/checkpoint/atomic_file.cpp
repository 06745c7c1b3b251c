// See atomic_file.hpp. Writes a temporary file, then fsync, rename, and fsync of the directory.
#include "checkpoint/atomic_file.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".tmp";
constexpr std::size_t digits = 8;

/// The remedy that an error message gives.
std::string remedy_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return fmt::format("; give uid {} permission to write there or choose another directory", geteuid());
    case EROFS: return "; mount it for writing or choose another directory";
    case ENOSPC:
    case EDQUOT: return "; free some space or choose another directory";
    case ENAMETOOLONG: return "; choose a shorter name (the temporary file's is 14 characters longer)";
    case ENOTDIR:
    case EEXIST: return "; a component of the path is a file, not a directory, so choose another";
    case EFBIG: return "; raise the limit of file sizes (ulimit -f) or choose another file system";
    default: return {};
  }
}

[[noreturn]] void fail(const std::string& what, int error, const std::string& detail = {}) {
  throw IoError(fmt::format("{}: {}{}{}", what, std::generic_category().message(error), detail, remedy_for(error)));
}

/// " (11083000 bytes needed, 4096 free)".
std::string space_detail(int error, const fs::path& directory, std::uintmax_t needed) {
  if (needed == 0 || (error != ENOSPC && error != EDQUOT)) return {};
  std::error_code unknown;
  const fs::space_info space = fs::space(directory, unknown);
  return unknown ? fmt::format(" ({} bytes needed)", needed)
                 : fmt::format(" ({} bytes needed, {} free)", needed, space.available);
}

fs::path directory_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

/// ".model.h5.1f09c3d2.tmp"
std::string temporary_name(std::string_view target) {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) fail("cannot draw a random file name", errno);
  return fmt::format(".{}.{:0{}x}{}", target, number, digits, suffix);
}

/// The target of a temporary file, "model.h5"; empty for the names of other files.
std::string_view target_of(std::string_view name) {
  constexpr std::size_t tail = 1 + digits + suffix.size();
  if (name.size() <= 1 + tail || !name.starts_with('.') || !name.ends_with(suffix)) return {};
  const std::string_view ending = name.substr(name.size() - tail, 1 + digits);
  if (ending[0] != '.' || ending.find_first_not_of("0123456789abcdef", 1) != ending.npos) return {};
  return name.substr(1, name.size() - 1 - tail);
}

/// True if the path names the open file.
bool names(const fs::path& path, const FileDescriptor& file) {
  struct stat by_path {};
  struct stat by_descriptor {};
  return stat(path.c_str(), &by_path) == 0 && fstat(file.number(), &by_descriptor) == 0 &&
         by_path.st_dev == by_descriptor.st_dev && by_path.st_ino == by_descriptor.st_ino;
}

/// Returns 0 if this process locked the file, EWOULDBLOCK if another process holds the lock, or the errno of a file
/// system without locks.
int lock(const FileDescriptor& file) {
  int result = -1;
  do {
    result = flock(file.number(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

/// Makes the names in a directory durable. Returns 0 or errno. Some network file systems cannot synchronize directories
/// and return EINVAL, which is not an error.
int sync_directory(const fs::path& directory) {
  const FileDescriptor descriptor(directory, O_RDONLY | O_DIRECTORY);
  return !descriptor.valid() || (fsync(descriptor.number()) != 0 && errno != EINVAL) ? errno : 0;
}

/// Creates the missing directories of a path and makes them durable, from the top down.
void create_directories_durably(const fs::path& directory) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path parent = directory; !parent.empty() && !fs::exists(parent, error); parent = parent.parent_path()) {
    if (missing.empty() || missing.back() != parent) missing.push_back(parent);
    if (parent == parent.parent_path()) break;
  }
  fs::create_directories(directory, error);
  if (error) fail("cannot create the directory " + directory.string(), error.value());
  for (auto created = missing.rbegin(); created != missing.rend(); ++created) {
    const int problem = sync_directory(directory_of(*created));
    // A directory may be writable without being readable.
    if (problem != 0 && problem != EACCES) fail("cannot synchronize the directory above " + created->string(), problem);
  }
}

}  // namespace

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  const std::string name = target_.filename().string();
  std::error_code unknown;
  if (name.empty() || name == "." || name == ".." || fs::is_directory(target_, unknown)) {
    throw IoError(fmt::format("cannot write {}: it is a directory; add the name of a file", target_.string()));
  }
  const fs::path directory = directory_of(target_);
  create_directories_durably(directory);
  remove_abandoned_files(directory, [&name](std::string_view target) { return target == name; });
  do {
    temporary_ = directory / temporary_name(name);
    file_ = FileDescriptor(temporary_, O_WRONLY | O_CREAT | O_EXCL);
    if (!file_.valid() && errno != EEXIST) fail("cannot write " + target_.string(), errno);
    // Until it is locked, another process may take a new file for an abandoned one and remove it.
  } while (!file_.valid() || lock(file_) == EWOULDBLOCK || !names(temporary_, file_));
  struct stat earlier {};
  if (stat(target_.c_str(), &earlier) == 0 && fchmod(file_.number(), earlier.st_mode & 0777U) != 0) {
    discard_and_throw(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> content) {
  const std::size_t size = content.size();
  while (!content.empty()) {
    // Linux writes at most 2 GiB per call.
    const ssize_t written = ::write(file_.number(), content.data(), std::min(content.size(), std::size_t{1} << 30U));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) discard_and_throw(errno, size);
    content = content.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fsync(file_.number()) != 0) {
    const int error = errno;
    struct stat status {};
    const bool known = fstat(file_.number(), &status) == 0;
    discard_and_throw(error, known ? static_cast<std::size_t>(status.st_size) : 0);
  }
  // Network file systems report some failed writes when a descriptor is closed. The duplicate keeps the lock.
  FileDescriptor duplicate(fcntl(file_.number(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) discard_and_throw(errno);
  if (const int error = duplicate.close(); error != 0) discard_and_throw(error);
  if (!names(temporary_, file_)) discard_and_throw(ENOENT);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) discard_and_throw(errno);
  committed_ = true;
  if (const int problem = sync_directory(directory_of(target_)); problem != 0) {
    fail(fmt::format("wrote {} but cannot synchronize its directory, so a power failure may lose it", target_.string()),
         problem);
  }
}

/// Removes the temporary file before it throws, because an uncaught exception runs no destructors.
void AtomicFile::discard_and_throw(int error, std::size_t needed) {
  const std::string detail = space_detail(error, directory_of(target_), needed);
  unlink(temporary_.c_str());
  fail("cannot write " + target_.string(), error, detail);
}

void remove_abandoned_files(const fs::path& directory,
                            const std::function<bool(std::string_view)>& is_target) noexcept {
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      const std::string_view target = target_of(name);
      if (target.empty() || !is_target(target)) continue;
      // O_NONBLOCK: a FIFO of this name must not block.
      const FileDescriptor file(entry.path(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
      if (file.valid() && lock(file) == 0 && names(entry.path(), file)) unlink(entry.path().c_str());
    }
  } catch (const std::exception&) {  // the directory cannot be read
    return;
  }
}

void write_file_atomically(const fs::path& target, std::span<const std::byte> content) {
  AtomicFile file(target);
  file.write(content);
  file.commit();
}

}  // namespace lockstep
