// See atomic_file.hpp. Writes a temporary file, then fsync, rename, and fsync of the directory.
#include "checkpoint/atomic_file.hpp"

#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
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

/// The remedy that an error message gives.
std::string remedy_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return fmt::format("; give uid {} permission to write there or choose another directory", geteuid());
    case EROFS: return "; mount it for writing or choose another directory";
    case ENOSPC:
    case EDQUOT: return "; free some space or choose another directory";
    case ENAMETOOLONG: return "; choose a shorter name (the temporary file's is up to 13 characters longer)";
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

  /// Returns 0 or errno. Network file systems report failed writes only here.
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

/// The process that a temporary file of `target` belongs to; nullopt for the names of other files.
std::optional<pid_t> owner_of(const std::string& name, const std::string& target) {
  const std::string prefix = fmt::format(".{}.", target);
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  const std::string_view digits(name.data() + prefix.size(), name.size() - prefix.size() - suffix.size());
  const auto pid = parse_number<pid_t>(digits);
  return pid && *pid > 0 ? pid : std::nullopt;
}

/// Removes temporary files that killed processes left for the same target. This process' pid counts as dead: in a
/// container, a process often has the pid of its predecessor. Failures are harmless and not reported.
void remove_leftovers(const fs::path& directory, const std::string& target) {
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    const std::optional<pid_t> pid = owner_of(entry->path().filename().string(), target);
    if (!pid) continue;
    const bool is_dead = *pid == getpid() || (kill(*pid, 0) != 0 && errno == ESRCH);
    if (is_dead) unlink(entry->path().c_str());
  }
}

/// Makes the rename durable. Some network file systems cannot synchronize directories and return EINVAL.
void sync_directory(const fs::path& directory, const fs::path& target) {
  const FileDescriptor descriptor(directory, O_RDONLY | O_DIRECTORY);
  if (!descriptor.valid() || (fsync(descriptor.number()) != 0 && errno != EINVAL)) {
    fail(fmt::format("wrote {} but cannot synchronize its directory, so a power failure may lose it", target.string()),
         errno);
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
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail("cannot create the directory " + directory.string(), error.value());

  remove_leftovers(directory, name);
  const fs::path temporary = directory / fmt::format(".{}.{}{}", name, getpid(), suffix);
  const FileDescriptor descriptor(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!descriptor.valid()) fail("cannot write " + target_.string(), errno);
  temporary_ = temporary;
}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> content) {
  const std::size_t size = content.size();
  FileDescriptor descriptor(temporary_, O_WRONLY | O_APPEND);
  if (!descriptor.valid()) discard_and_throw(errno);
  while (!content.empty()) {
    // Linux writes at most 2 GiB per call.
    const ssize_t written =
        ::write(descriptor.number(), content.data(), std::min(content.size(), std::size_t{1} << 30U));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) discard_and_throw(errno, size);
    content = content.subspan(static_cast<std::size_t>(written));
  }
  if (const int error = descriptor.close(); error != 0) discard_and_throw(error, size);
}

void AtomicFile::commit() {
  FileDescriptor descriptor(temporary_, O_WRONLY);
  if (!descriptor.valid()) discard_and_throw(errno);
  if (fsync(descriptor.number()) != 0) {
    const int error = errno;
    struct stat status {};
    const bool known = fstat(descriptor.number(), &status) == 0;
    discard_and_throw(error, known ? static_cast<std::size_t>(status.st_size) : 0);
  }
  if (const int error = descriptor.close(); error != 0) discard_and_throw(error);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) discard_and_throw(errno);
  committed_ = true;
  sync_directory(directory_of(target_), target_);
}

/// Removes the temporary file before it throws, because an uncaught exception runs no destructors.
void AtomicFile::discard_and_throw(int error, std::size_t needed) {
  const std::string detail = space_detail(error, directory_of(target_), needed);
  unlink(temporary_.c_str());
  fail("cannot write " + target_.string(), error, detail);
}

void write_file_atomically(const fs::path& target, std::span<const std::byte> content) {
  AtomicFile file(target);
  file.write(content);
  file.commit();
}

}  // namespace lockstep
