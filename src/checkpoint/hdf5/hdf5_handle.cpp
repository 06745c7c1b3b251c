// See hdf5_handle.hpp.
#include "checkpoint/hdf5/hdf5_handle.hpp"

#include "checkpoint/model_data.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <type_traits>

namespace lockstep {

static_assert(std::is_same_v<hid_t, std::int64_t> && std::is_same_v<herr_t, int>);

Hdf5ErrorSuppressor::Hdf5ErrorSuppressor() noexcept {
  if (H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_) >= 0) H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5ErrorSuppressor::~Hdf5ErrorSuppressor() { H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_); }

std::string describe_hdf5_error() {
  std::string reason;
  const auto keep_first = [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
    auto& text = *static_cast<std::string*>(data);
    if (text.empty() && error != nullptr && error->desc != nullptr) text = error->desc;
    return 0;
  };
  if (H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason) < 0 || reason.empty()) return "no reason given";
  return reason;
}

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "unknown";
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace lockstep
