// See file_system.hpp.
#include "core/file_system.hpp"

#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

/// The remedy that an error message gives.
std::string remedy_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return fmt::format("; give uid {} permission to write there or choose another directory", geteuid());
    case ENOENT: return "; choose another directory";
    case EROFS: return "; mount it for writing or choose another directory";
    case ENOSPC:
    case EDQUOT: return "; free some space";
    case ENAMETOOLONG: return "; choose a shorter name (the temporary file's is 14 characters longer)";
    case ENOTDIR:
    case EEXIST: return "; a component of the path is a file, not a directory, so choose another";
    case EFBIG: return "; raise the limit of file sizes (ulimit -f) or choose another file system";
    default: return {};
  }
}

}  // namespace

void throw_io_error(const std::string& what, int error, const std::string& detail) {
  const std::string text =
      fmt::format("{}: {}{}{}", what, std::generic_category().message(error), detail, remedy_for(error));
  if (error == ENOSPC || error == EDQUOT) throw NoSpaceError(text);
  throw IoError(text);
}

fs::path directory_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

fs::path follow_links(fs::path file) {
  constexpr int max_links = 40;  // as Linux
  std::error_code unknown;
  for (int i = 0; i < max_links && fs::is_symlink(file, unknown); ++i) {
    file = file.parent_path() / fs::read_symlink(file, unknown);
  }
  return file;
}

bool is_path_of(const fs::path& path, const FileDescriptor& file) {
  struct stat by_path {};
  struct stat by_descriptor {};
  return stat(path.c_str(), &by_path) == 0 && fstat(file.number(), &by_descriptor) == 0 &&
         by_path.st_dev == by_descriptor.st_dev && by_path.st_ino == by_descriptor.st_ino;
}

FileDescriptor open_for_lock(const fs::path& path) {
  constexpr int flags = O_NOFOLLOW | O_NONBLOCK;
  FileDescriptor file(path, O_RDWR | flags);
  if (!file.valid() && (errno == EACCES || errno == EPERM || errno == EROFS)) return {path, O_RDONLY | flags};
  return file;
}

int try_lock(const FileDescriptor& file) {
  int result = -1;
  do {
    result = flock(file.number(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

int try_lock(const FileDescriptor& file, double seconds) {
  constexpr std::chrono::milliseconds pause{50};
  const double begin = monotonic_seconds();
  int error = try_lock(file);
  while (error == EWOULDBLOCK && monotonic_seconds() <= begin + seconds) {
    std::this_thread::sleep_for(pause);
    error = try_lock(file);
  }
  return error;
}

int sync_directory(const fs::path& directory) {
  const FileDescriptor descriptor(directory, O_RDONLY | O_DIRECTORY);
  return !descriptor.valid() || (fsync(descriptor.number()) != 0 && errno != EINVAL) ? errno : 0;
}

void create_directories_durably(const fs::path& directory) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path parent = directory; !parent.empty() && !fs::exists(parent, error); parent = parent.parent_path()) {
    if (missing.empty() || missing.back() != parent) missing.push_back(parent);
    if (parent == parent.parent_path()) break;
  }
  fs::create_directories(directory, error);
  if (error) throw_io_error("cannot create the directory " + directory.string(), error.value());
  std::reverse(missing.begin(), missing.end());
  for (const fs::path& created : missing) {
    const int problem = sync_directory(directory_of(created));
    // A directory may be writable without being readable.
    if (problem != 0 && problem != EACCES)
      throw_io_error("cannot synchronize the directory above " + created.string(), problem);
  }
}

}  // namespace lockstep
