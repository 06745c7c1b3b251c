// Memory for tensors: zero-initialized, aligned to cache lines, and on huge pages if the system grants them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

/// Owns `size` zeroed bytes. Buffers below 2 MiB are aligned to 64 bytes, larger ones to 2 MiB. Of a larger one, only
/// the pages that are used take memory: a batch may be much smaller than the largest one.
/// The constructor throws std::bad_alloc when memory or addresses run out.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }

  /// Gives the memory of a large buffer back until it is used again. Its bytes are zeros then; a small one keeps them.
  void release() noexcept;

  /// Views the buffer as an array of T; a remainder smaller than a T is left out.
  template <typename T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  struct Free {
    std::size_t mapped;  ///< bytes; 0: from the heap
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace lockstep
