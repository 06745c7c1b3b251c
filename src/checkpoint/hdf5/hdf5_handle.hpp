// RAII handles for HDF5 identifiers, and HDF5's errors as text. Spells HDF5's integer types out, so that only .cpp
// files include hdf5.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep {

/// Owns an HDF5 identifier (hid_t); `close` is the H5?close function of its type.
class Hdf5Handle {
 public:
  using Closer = int (*)(std::int64_t);

  Hdf5Handle() noexcept = default;
  Hdf5Handle(std::int64_t id, Closer close) noexcept : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
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
  [[nodiscard]] std::int64_t get() const noexcept { return id_; }

 private:
  std::int64_t id_ = -1;
  Closer close_ = nullptr;
};

/// Stops HDF5 from printing errors during its lifetime; describe_hdf5_error() returns the reason instead. Notes reads
/// that failed, which HDF5 reports as it reports damaged files.
class Hdf5ErrorSuppressor {
 public:
  Hdf5ErrorSuppressor() noexcept;
  ~Hdf5ErrorSuppressor();
  Hdf5ErrorSuppressor(const Hdf5ErrorSuppressor&) = delete;
  Hdf5ErrorSuppressor& operator=(const Hdf5ErrorSuppressor&) = delete;

  /// The errno of the last read of a file that failed; 0: none did.
  [[nodiscard]] int read_errno() const noexcept { return read_errno_; }

 private:
  int read_errno_ = 0;
  int (*printer_)(std::int64_t, void*) = nullptr;
  void* printer_data_ = nullptr;
};

/// The innermost error of the last failed call, e.g. "truncated file: eof = 96, sblock->base_addr = 0", or "no reason
/// given".
[[nodiscard]] std::string describe_hdf5_error();

}  // namespace lockstep
