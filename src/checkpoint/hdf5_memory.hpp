// The memory of an HDF5 file in the making, which the library's core driver asks for by callbacks. So the file can be
// read where it lies, without a copy for us; and it lies in large pages where the kernel gives such, since the first
// touches of small ones take longer than all else that is done to a file.
#pragma once

#include "core/aligned_buffer.hpp"

#include <hdf5.h>

#include <cstddef>

namespace lockstep {

class Hdf5Memory {
 public:
  Hdf5Memory() = default;
  Hdf5Memory(const Hdf5Memory&) = delete;
  Hdf5Memory& operator=(const Hdf5Memory&) = delete;

  /// A file made with the property list `access` lies here; this must live until it is closed.
  [[nodiscard]] herr_t serve(hid_t access);

  [[nodiscard]] const std::byte* data() const noexcept { return buffer_.data(); }
  /// At least the file's; 0 once it is closed.
  [[nodiscard]] std::size_t capacity() const noexcept { return buffer_.size(); }

 private:
  /// Keeps what it holds. Null when there is no memory: HDF5 reports it.
  [[nodiscard]] void* grow(std::size_t size) noexcept;

  AlignedBuffer buffer_;
};

}  // namespace lockstep
