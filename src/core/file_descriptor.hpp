// Owns a file descriptor.
#pragma once

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace lockstep {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) noexcept : number_(number) {}
  /// Opens a file, close-on-exec. On failure the result is not valid() and errno says why.
  FileDescriptor(const std::filesystem::path& path, int flags, unsigned mode = 0666) noexcept {
    do {
      number_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    } while (number_ < 0 && errno == EINTR);
    // In a process without standard output, what it prints must not go to this file.
    if (number_ >= 0 && number_ <= STDERR_FILENO) {
      const int standard = std::exchange(number_, ::fcntl(number_, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
      ::close(standard);
    }
  }
  ~FileDescriptor() { [[maybe_unused]] const int error = close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  [[nodiscard]] bool valid() const noexcept { return number_ >= 0; }
  [[nodiscard]] int number() const noexcept { return number_; }

  /// Returns 0 or errno. Network file systems report some failed writes only here.
  [[nodiscard]] int close() noexcept {
    if (number_ < 0) return 0;
    return ::close(std::exchange(number_, -1)) == 0 ? 0 : errno;
  }

 private:
  int number_ = -1;
};

}  // namespace lockstep
