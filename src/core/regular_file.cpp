// See regular_file.hpp.
#include "core/regular_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <system_error>

namespace lockstep {

void require_regular_file(const std::filesystem::path& file, const char* kind) {
  std::error_code unknown;  // for the call that opens the file, which says more
  const std::filesystem::file_status status = std::filesystem::status(file, unknown);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  const char* const what =
      std::filesystem::is_directory(status) ? "a directory, not a regular file" : "not a regular file";
  throw IoError(fmt::format("{} is {}; give the path of a {}", file.string(), what, kind));
}

}  // namespace lockstep
