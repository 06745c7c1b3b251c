// Temporary file, write, fsync, rename, fsync of the directory; and one sentence with a remedy for each way to fail.
#include "checkpoint/atomic_file.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".tmp";

/// What a person can do about a failed call.
std::string remedy_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "; let this user (uid " + std::to_string(geteuid()) + ") write there or choose another directory";
    case EROFS: return "; mount it for writing or choose another directory";
    case ENOSPC:
    case EDQUOT: return "; free some space or choose another directory";
    case ENAMETOOLONG: return "; choose a shorter name (the temporary file's is up to 13 characters longer)";
    case ENOTDIR:
    case EEXIST: return "; a part of the path is a file, not a directory, so choose another";
    case EFBIG: return "; raise the limit of file sizes (ulimit -f) or choose another file system";
    default: return {};
  }
}

[[noreturn]] void fail(const std::string& what, int error, const std::string& detail = {}) {
  throw IoError(what + ": " + std::generic_category().message(error) + detail + remedy_for(error) + ".");
}

/// " (11083000 bytes needed, 4096 free)".
std::string space_detail(int error, const fs::path& directory, std::uintmax_t needed) {
  if (needed == 0 || (error != ENOSPC && error != EDQUOT)) return {};
  std::string text = " (" + std::to_string(needed) + " bytes needed";
  std::error_code ignored;
  const fs::space_info space = fs::space(directory, ignored);
  if (!ignored) text += ", " + std::to_string(space.available) + " free";
  return text + ")";
}

class FileDescriptor {
 public:
  FileDescriptor(const fs::path& path, int flags) : number_(open(path, flags)) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] bool valid() const noexcept { return number_ >= 0; }
  [[nodiscard]] int number() const noexcept { return number_; }

  /// Network file systems tell of failed writes only here. 0 or errno.
  [[nodiscard]] int close() noexcept { return ::close(std::exchange(number_, -1)) == 0 ? 0 : errno; }

 private:
  static int open(const fs::path& path, int flags) {
    int number = -1;
    do {
      number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    } while (number < 0 && errno == EINTR);
    return number;
  }

  int number_;
};

fs::path directory_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

/// The process that a temporary file of `target` belongs to; nothing if the name is not of our pattern.
std::optional<pid_t> owner_of(const std::string& name, const std::string& target) {
  const std::string prefix = "." + target + ".";
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  const char* const begin = name.data() + prefix.size();
  const char* const end = name.data() + name.size() - suffix.size();
  pid_t pid = 0;
  const auto [stopped, error] = std::from_chars(begin, end, pid);
  if (error != std::errc{} || stopped != end || pid <= 0) return {};
  return pid;
}

/// Removes what killed processes left of the same target. Our own pid counts as dead: in a container, a process is
/// often given the number of the one before it. Failing here harms nobody, so nothing is reported.
void remove_leftovers(const fs::path& directory, const std::string& target) {
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    const std::optional<pid_t> pid = owner_of(entry->path().filename().string(), target);
    if (!pid) continue;
    const bool gone = *pid == getpid() || (kill(*pid, 0) != 0 && errno == ESRCH);
    if (gone) unlink(entry->path().c_str());
  }
}

/// Makes the rename durable. Some network file systems cannot synchronise directories and say EINVAL.
void sync_directory(const fs::path& directory, const fs::path& target) {
  const FileDescriptor descriptor(directory, O_RDONLY | O_DIRECTORY);
  if (!descriptor.valid() || (fsync(descriptor.number()) != 0 && errno != EINVAL)) {
    fail("Wrote " + target.string() + " but cannot synchronise its directory, so a power failure may lose it", errno);
  }
}

}  // namespace

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  const std::string name = target_.filename().string();
  std::error_code unknown;
  if (name.empty() || name == "." || name == ".." || fs::is_directory(target_, unknown)) {
    throw IoError("Cannot write " + target_.string() + ": it is a directory; add the name of a file.");
  }
  const fs::path directory = directory_of(target_);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail("Cannot create the directory " + directory.string(), error.value());

  remove_leftovers(directory, name);
  const fs::path temporary = directory / ("." + name + "." + std::to_string(getpid()) + std::string(suffix));
  const FileDescriptor descriptor(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!descriptor.valid()) fail("Cannot write " + target_.string(), errno);
  temporary_ = temporary;
}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> content) {
  const std::size_t size = content.size();
  FileDescriptor descriptor(temporary_, O_WRONLY | O_APPEND);
  if (!descriptor.valid()) give_up(errno);
  while (!content.empty()) {
    // Linux writes at most 2 GiB a call.
    const ssize_t written =
        ::write(descriptor.number(), content.data(), std::min(content.size(), std::size_t{1} << 30U));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) give_up(errno, size);
    content = content.subspan(static_cast<std::size_t>(written));
  }
  if (const int error = descriptor.close(); error != 0) give_up(error, size);
}

void AtomicFile::commit() {
  FileDescriptor descriptor(temporary_, O_WRONLY);
  if (!descriptor.valid()) give_up(errno);
  if (fsync(descriptor.number()) != 0) {
    const int error = errno;
    struct stat status {};
    const bool known = fstat(descriptor.number(), &status) == 0;
    give_up(error, known ? static_cast<std::size_t>(status.st_size) : 0);
  }
  if (const int error = descriptor.close(); error != 0) give_up(error);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) give_up(errno);
  committed_ = true;
  sync_directory(directory_of(target_), target_);
}

/// An error that nobody catches ends the process without unwinding, so the destructor is not relied on.
void AtomicFile::give_up(int error, std::size_t needed) {
  const std::string detail = space_detail(error, directory_of(target_), needed);
  unlink(temporary_.c_str());
  fail("Cannot write " + target_.string(), error, detail);
}

void write_file_atomically(const fs::path& target, std::span<const std::byte> content) {
  AtomicFile file(target);
  file.write(content);
  file.commit();
}

}  // namespace lockstep
