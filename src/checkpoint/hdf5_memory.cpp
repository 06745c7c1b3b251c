// See hdf5_memory.hpp. The callbacks: "HDF5 File Image Operations", section 3, in the HDF5 documentation.
#include "checkpoint/hdf5_memory.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace lockstep {

herr_t Hdf5Memory::serve(hid_t access) {
  H5FD_file_image_callbacks_t callbacks{};
  callbacks.image_malloc = [](std::size_t size, H5FD_file_image_op_t, void* self) {
    return static_cast<Hdf5Memory*>(self)->grow(size);
  };
  callbacks.image_realloc = [](void*, std::size_t size, H5FD_file_image_op_t, void* self) {
    return static_cast<Hdf5Memory*>(self)->grow(size);
  };
  callbacks.image_free = [](void*, H5FD_file_image_op_t, void* self) -> herr_t {
    static_cast<Hdf5Memory*>(self)->buffer_ = {};
    return 0;
  };
  callbacks.udata = this;
  callbacks.udata_copy = [](void* self) { return self; };  // property lists are copied; this is not
  callbacks.udata_free = [](void*) -> herr_t { return 0; };
  return H5Pset_file_image_callbacks(access, &callbacks);
}

void* Hdf5Memory::grow(std::size_t size) noexcept {
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
