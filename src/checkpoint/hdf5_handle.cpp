// How HDF5's error stack becomes one phrase.
#include "checkpoint/hdf5_handle.hpp"

#include "checkpoint/saved_model.hpp"

#include <hdf5.h>

#include <string>

namespace lockstep {

Hdf5Silence::Hdf5Silence() noexcept {
  if (H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_) >= 0) H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Silence::~Hdf5Silence() { H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_); }

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
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

}  // namespace lockstep
