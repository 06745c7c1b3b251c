// See sequential_file.hpp. Plain system calls read directly into the caller's memory, without a buffer between.
#include "data/sequential_file.hpp"

#include "core/regular_file.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace lockstep {

namespace {

[[noreturn]] void throw_io_error(const std::string& what, int error) {
  throw IoError(fmt::format("{}: {}; check the path and its permissions", what, std::system_category().message(error)));
}

}  // namespace

SequentialFile::SequentialFile(const std::filesystem::path& path) : name_(path.string()) {
  require_regular_file(path, "data file");
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) throw_io_error("cannot open " + name_, error);
    throw UsageError(
        fmt::format("cannot open {}: No such file or directory; check the path", name_));  // no restart mends it
  }
  struct stat status {};  // of what was opened
  const int failed = ::fstat(descriptor_, &status);
  const int error = errno;
  if (failed != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    if (failed != 0) throw_io_error("cannot examine " + name_, error);
    throw IoError(fmt::format("{} is not a regular file; give the path of a data file", name_));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

SequentialFile::~SequentialFile() { ::close(descriptor_); }

void SequentialFile::read(std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const ssize_t count = ::read(descriptor_, out.data(), out.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error("cannot read " + name_, errno);
    if (count == 0) {
      throw IoError(fmt::format("{} became shorter while it was read; let its writer finish, then try again", name_));
    }
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path) {
  SequentialFile file(path);
  if (file.size() > max_file_bytes) {
    throw DataError(fmt::format("{} has {} bytes, but data files have at most {}; check that it is the right file",
                                file.name(), file.size(), max_file_bytes));
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
  file.read(bytes);
  return bytes;
}

}  // namespace lockstep
