// Memory of one process that others of its host can map. It is a file in no directory, so that the kernel frees it with
// its last user, even after a crash.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "core/file_descriptor.hpp"

namespace lockstep {

class SharedMemory {
 public:
  SharedMemory() = default;
  /// `size` zeroed bytes. Throws std::bad_alloc when memory or addresses run out, IoError at the limit of file sizes.
  explicit SharedMemory(std::size_t size);
  /// Maps another process's memory by its handle. The result is empty if that process runs on another host, or out of
  /// this one's reach. Throws DataError for a malformed handle.
  SharedMemory(const std::string& handle, const std::string& host, std::size_t size);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// By which another process maps this memory while it exists. `host`: equal in processes of one host.
  [[nodiscard]] std::string handle(const std::string& host) const;

  [[nodiscard]] bool is_empty() const noexcept { return memory_.empty(); }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_; }

 private:
  void map(const FileDescriptor& file, std::size_t size);

  FileDescriptor file_;
  std::string name_;
  std::span<std::byte> memory_;
};

}  // namespace lockstep
