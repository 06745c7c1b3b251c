// See hdf5_file_image.hpp. The callbacks are described in section 3 of HDF5's "File Image Operations".
#include "checkpoint/hdf5/hdf5_file_image.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

namespace lockstep {

bool Hdf5FileImage::install(std::int64_t access) {
  H5FD_file_image_callbacks_t callbacks{};
  callbacks.image_malloc = [](std::size_t size, H5FD_file_image_op_t, void* self) {
    return static_cast<Hdf5FileImage*>(self)->grow(size);
  };
  callbacks.image_realloc = [](void*, std::size_t size, H5FD_file_image_op_t, void* self) {
    return static_cast<Hdf5FileImage*>(self)->grow(size);
  };
  callbacks.image_free = [](void*, H5FD_file_image_op_t, void* self) -> herr_t {
    static_cast<Hdf5FileImage*>(self)->buffer_ = {};
    return 0;
  };
  callbacks.udata = this;
  callbacks.udata_copy = [](void* self) { return self; };  // HDF5 copies the property list, but must not copy this
  callbacks.udata_free = [](void*) -> herr_t { return 0; };
  return H5Pset_file_image_callbacks(access, &callbacks) >= 0;
}

void* Hdf5FileImage::grow(std::size_t size) noexcept {
  try {
    AlignedBuffer larger(size);
    std::copy_n(buffer_.data(), std::min(buffer_.size(), size), larger.data());
    buffer_ = std::move(larger);
    return buffer_.data();
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace lockstep
