// Plain system calls: one descriptor, and no buffer between the file and where its bytes belong.
#include "data/input_file.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace lockstep {

namespace {

[[noreturn]] void throw_io_error(const std::string& what, int error) {
  throw IoError(what + ": " + std::system_category().message(error) + "; check the path and its permissions.");
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw_io_error("Cannot open " + name_, errno);
  struct stat status {};
  const int failed = ::fstat(descriptor_, &status);
  const int error = errno;
  if (failed != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    if (failed != 0) throw_io_error("Cannot examine " + name_, error);
    throw IoError(name_ + " is not a regular file; name a data file.");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const ssize_t count = ::read(descriptor_, out.data(), out.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error("Cannot read " + name_, errno);
    if (count == 0) throw IoError(name_ + " became shorter while it was read; let its writer finish, then try again.");
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::vector<std::uint8_t> read_whole_file(const std::filesystem::path& path) {
  InputFile file(path);
  if (file.size() > max_data_bytes) {
    throw DataError(file.name() + " has " + std::to_string(file.size()) + " bytes, but data files have at most " +
                    std::to_string(max_data_bytes) + "; check that it is the right file.");
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
  file.read(bytes);
  return bytes;
}

}  // namespace lockstep
