// See hdf5_memory.hpp. The callbacks: "HDF5 File Image Operations", section 3, in the HDF5 documentation.
#include "checkpoint/hdf5_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep {

namespace {

constexpr std::size_t large_page = std::size_t{2} << 20U;

}  // namespace

herr_t Hdf5Memory::serve(hid_t access) {
  H5FD_file_image_callbacks_t callbacks{};
  callbacks.image_malloc = [](std::size_t size, H5FD_file_image_op_t, void* self) {
    return static_cast<Hdf5Memory*>(self)->grow(size);
  };
  callbacks.image_realloc = [](void*, std::size_t size, H5FD_file_image_op_t, void* self) {
    return static_cast<Hdf5Memory*>(self)->grow(size);
  };
  callbacks.image_free = [](void*, H5FD_file_image_op_t, void* self) -> herr_t {
    static_cast<Hdf5Memory*>(self)->release();
    return 0;
  };
  callbacks.udata = this;
  callbacks.udata_copy = [](void* self) { return self; };  // property lists are copied; this is not
  callbacks.udata_free = [](void*) -> herr_t { return 0; };
  return H5Pset_file_image_callbacks(access, &callbacks);
}

void* Hdf5Memory::grow(std::size_t size) noexcept {
  const std::size_t capacity = (size + large_page - 1) / large_page * large_page;
  std::unique_ptr<std::byte, Free> data(static_cast<std::byte*>(std::aligned_alloc(large_page, capacity)));
  if (!data) return nullptr;
  (void)madvise(data.get(), capacity, MADV_HUGEPAGE);  // not a need
  if (data_) std::memcpy(data.get(), data_.get(), std::min(capacity_, capacity));
  data_ = std::move(data);
  capacity_ = capacity;
  return data_.get();
}

void Hdf5Memory::release() noexcept {
  data_.reset();
  capacity_ = 0;
}

}  // namespace lockstep
