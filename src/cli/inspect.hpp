// `lockstep inspect`: what lies in a model file or in a directory of them (the mounted volume), Lockstep's or Keras'.
#pragma once

#include <lockstep/core/error.hpp>

#include <filesystem>
#include <ostream>

namespace lockstep {

struct InspectOptions {
  std::filesystem::path path;
  bool check = false;
  bool json = false;
};

/// A file that cannot be read is thrown as the error it is. In a directory it is listed with the reason; with `check`
/// the answer is then ExitCode::data, as it is for weights that are no numbers and for a directory without a model.
[[nodiscard]] ExitCode inspect(const InspectOptions& options, std::ostream& out);

/// ExitCode::success where all weights have the same bits, ExitCode::data otherwise.
[[nodiscard]] ExitCode compare(const std::filesystem::path& left, const std::filesystem::path& right, bool json,
                               std::ostream& out);

}  // namespace lockstep
