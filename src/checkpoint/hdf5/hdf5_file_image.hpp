// The memory of an HDF5 file under construction. HDF5's core driver allocates it through callbacks, and AtomicFile
// writes the finished file from it without a copy. It is on huge pages, because page faults on small pages would take
// longer than all other work on the file.
#pragma once

#include "core/aligned_buffer.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

class Hdf5FileImage {
 public:
  Hdf5FileImage() = default;
  Hdf5FileImage(const Hdf5FileImage&) = delete;
  Hdf5FileImage& operator=(const Hdf5FileImage&) = delete;

  /// Makes files created with the property list `access` use this memory, which must outlive them. Returns false if
  /// HDF5 fails.
  [[nodiscard]] bool install(std::int64_t access);

  [[nodiscard]] const std::byte* data() const noexcept { return buffer_.data(); }
  /// Allocated bytes: at least the file's size, 0 once the file is closed.
  [[nodiscard]] std::size_t capacity() const noexcept { return buffer_.size(); }

 private:
  /// Reallocates and copies the content. Returns null if memory runs out; HDF5 then reports the error.
  [[nodiscard]] void* grow(std::size_t size) noexcept;

  AlignedBuffer buffer_;
};

}  // namespace lockstep
