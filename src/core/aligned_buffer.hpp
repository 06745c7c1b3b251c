// Memory for tensors: aligned to cache lines, zero at first, on huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

/// `size` bytes from the system, zeroed, aligned to 64 bytes (to 2 MiB from 2 MiB upward).
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }

  /// The buffer as an array of T.
  template <typename T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace lockstep
