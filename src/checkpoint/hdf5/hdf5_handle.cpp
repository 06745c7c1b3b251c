// See hdf5_handle.hpp.
#include "checkpoint/hdf5/hdf5_handle.hpp"

#include "checkpoint/model_data.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

static_assert(std::is_same_v<hid_t, std::int64_t> && std::is_same_v<herr_t, int>);

namespace {

/// Finds the errno of a failed read in the stack of errors: its message is all that has it.
herr_t find_read_errno(unsigned /*depth*/, const H5E_error2_t* error, void* found) {
  if (error == nullptr || error->desc == nullptr || error->min_num != H5E_READERROR) return 0;
  constexpr std::string_view name = "errno = ";
  const std::string_view text(error->desc);
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  int number = 0;
  (void)std::from_chars(text.data() + at + name.size(), text.data() + text.size(), number);
  // A damaged file may ask for bytes that no file has.
  if (number != EINVAL && number != 0) *static_cast<int*>(found) = number;
  return 0;
}

}  // namespace

Hdf5ErrorSuppressor::Hdf5ErrorSuppressor() noexcept {
  const auto note = [](hid_t stack, void* found) { return H5Ewalk2(stack, H5E_WALK_UPWARD, &find_read_errno, found); };
  if (H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_) >= 0) H5Eset_auto2(H5E_DEFAULT, note, &read_errno_);
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
