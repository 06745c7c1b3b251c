// See atomic_file.hpp. Writes a temporary file, then fsync, rename, and fsync of the directory.
#include "checkpoint/atomic_file.hpp"

#include "core/fault_point.hpp"
#include "core/file_system.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".tmp";
constexpr std::size_t digits = 8;

/// " (11083000 bytes needed, 4096 free)".
std::string space_detail(int error, const fs::path& directory, std::uintmax_t needed) {
  if (needed == 0 || (error != ENOSPC && error != EDQUOT)) return {};
  std::error_code unknown;
  const fs::space_info space = fs::space(directory, unknown);
  return unknown ? fmt::format(" ({} bytes needed)", needed)
                 : fmt::format(" ({} bytes needed, {} free)", needed, space.available);
}

}  // namespace

std::string temporary_name(std::string_view target) {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw_io_error("cannot draw a random file name", errno);
  return fmt::format(".{}.{:0{}x}{}", target, number, digits, suffix);
}

std::string_view target_of(std::string_view name) {
  constexpr std::size_t tail = 1 + digits + suffix.size();
  if (name.size() <= 1 + tail || !name.starts_with('.') || !name.ends_with(suffix)) return {};
  const std::string_view ending = name.substr(name.size() - tail, 1 + digits);
  if (ending[0] != '.' || ending.find_first_not_of("0123456789abcdef", 1) != std::string_view::npos) return {};
  return name.substr(1, name.size() - 1 - tail);
}

AtomicFile::AtomicFile(fs::path target, WriteGuard guard)
    : target_(follow_links(std::move(target))), guard_(std::move(guard)) {
  const std::string name = target_.filename().string();
  std::error_code unknown;
  if (name.empty() || name == "." || name == ".." || fs::is_directory(target_, unknown)) {
    throw IoError(fmt::format("cannot write {}: it is a directory; add the name of a file", target_.string()));
  }
  if (const auto type = fs::status(target_, unknown).type();
      !unknown && type != fs::file_type::regular && type != fs::file_type::not_found) {
    throw IoError(fmt::format(
        "cannot write {}: it is a device, a pipe or a socket, which would be replaced; name a file", target_.string()));
  }
  const fs::path directory = directory_of(target_);
  // A missing directory may have been moved, and only its owner makes it.
  if (guard_ && !fs::exists(directory, unknown)) guard_(target_);
  create_directories_durably(directory);
  remove_abandoned_files(directory, [&name](std::string_view target) { return target == name; });
  do {
    temporary_ = directory / temporary_name(name);
    file_ = FileDescriptor(temporary_, O_WRONLY | O_CREAT | O_EXCL);
    if (!file_.valid() && errno != EEXIST) throw_io_error("cannot write " + target_.string(), errno);
    // Until it is locked, another process may take a new file for an abandoned one and remove it.
  } while (!file_.valid() || try_lock(file_) == EWOULDBLOCK || !is_path_of(temporary_, file_));
  struct stat earlier {};
  if (stat(target_.c_str(), &earlier) == 0 && fchmod(file_.number(), earlier.st_mode & 0777U) != 0) {
    discard_and_throw(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::write_at(std::size_t offset, std::span<const std::byte> content) {
  fault_point("write");
  if (offset != position_ && lseek(file_.number(), static_cast<off_t>(offset), SEEK_SET) < 0) discard_and_throw(errno);
  position_ = offset + content.size();
  while (!content.empty()) {
    // Linux writes at most 2 GiB per call.
    const ssize_t written = ::write(file_.number(), content.data(), std::min(content.size(), std::size_t{1} << 30U));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) discard_and_throw(errno, std::max(position_, expected_));
    content = content.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  fault_point("fsync");
  if (fsync(file_.number()) != 0) {
    const int error = errno;
    struct stat status {};
    const bool known = fstat(file_.number(), &status) == 0;
    discard_and_throw(error, known ? static_cast<std::size_t>(status.st_size) : 0);
  }
  // Network file systems report some failed writes when a descriptor is closed. The duplicate keeps the lock.
  FileDescriptor duplicate(fcntl(file_.number(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!duplicate.valid()) discard_and_throw(errno);
  if (const int error = duplicate.close(); error != 0) discard_and_throw(error);
  try {
    if (guard_) guard_(target_);
  } catch (const Error&) {
    unlink(temporary_.c_str());
    throw;
  }
  if (!is_path_of(temporary_, file_)) discard_and_throw(ENOENT);
  fault_point("rename");
  if (rename(temporary_.c_str(), target_.c_str()) != 0) discard_and_throw(errno);
  committed_ = true;
  record_event({.what = "publish", .file = target_.native()});
  fault_point("renamed");
  if (const int problem = sync_directory(directory_of(target_)); problem != 0) {
    throw_io_error(
        fmt::format("wrote {} but cannot synchronize its directory, so a power failure may lose it", target_.string()),
        problem);
  }
}

/// Removes the temporary file before it throws, because an uncaught exception runs no destructors.
void AtomicFile::discard_and_throw(int error, std::size_t needed) {
  const std::string detail = space_detail(error, directory_of(target_), needed);
  unlink(temporary_.c_str());
  throw_io_error("cannot write " + target_.string(), error, detail);
}

void remove_abandoned_files(const fs::path& directory,
                            const std::function<bool(std::string_view)>& is_target) noexcept {
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      const std::string_view target = target_of(name);
      if (target.empty() || !is_target(target)) continue;
      const FileDescriptor file = open_for_lock(entry.path());
      if (file.valid() && try_lock(file) == 0 && is_path_of(entry.path(), file)) unlink(entry.path().c_str());
    }
  } catch (const std::exception&) {  // the directory cannot be read
    return;
  }
}

void require_writable(const fs::path& target) {
  AtomicFile probe(target);  // never committed
  constexpr std::array<std::byte, 4096> page{};
  probe.write(page);  // a full disk can still hold an empty file
}

void write_file_atomically(const fs::path& target, std::span<const std::byte> content, const WriteGuard& guard) {
  AtomicFile file(target, guard);
  file.write(content);
  file.commit();
}

}  // namespace lockstep
