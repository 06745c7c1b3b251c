// The HDF5 library as the rest of this room sees it: handles that close themselves, and failures as text instead of
// the stack that the library prints.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

namespace lockstep {

/// Owns one identifier of HDF5; `close` is its type's H5?close.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Hdf5Handle(hid_t id, Closer close) noexcept : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  ~Hdf5Handle() {
    if (valid()) close_(id_);
  }

  [[nodiscard]] bool valid() const noexcept { return id_ >= 0; }
  [[nodiscard]] hid_t get() const noexcept { return id_; }

 private:
  hid_t id_;
  Closer close_;
};

/// While it lives, HDF5 prints nothing; the failed call's reason is had from describe_hdf5_error().
class Hdf5Silence {
 public:
  Hdf5Silence() noexcept;
  ~Hdf5Silence();
  Hdf5Silence(const Hdf5Silence&) = delete;
  Hdf5Silence& operator=(const Hdf5Silence&) = delete;

 private:
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
};

/// The innermost reason of the last failed call, e.g. "truncated file: eof = 96, sblock->base_addr = 0"; "no reason
/// given" if there is none.
[[nodiscard]] std::string describe_hdf5_error();

}  // namespace lockstep
