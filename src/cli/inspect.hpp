// `lockstep inspect`: shows, checks or compares model files, and directories of them, that Lockstep or Keras wrote.
#pragma once

#include <lockstep/core/error.hpp>

#include <filesystem>
#include <ostream>
#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the command. Throws Error for a file that cannot be read; a directory's list shows the reason
/// instead. With --check, throws DataError for damaged files, weights that are NaN or infinite, and a directory without
/// a model.
[[nodiscard]] ExitCode inspect_models(std::span<const std::string> args, std::ostream& out);

/// Prints the differences. Returns ExitCode::success if all weights have the same bits, otherwise ExitCode::data.
[[nodiscard]] ExitCode compare(const std::filesystem::path& left, const std::filesystem::path& right, bool json,
                               std::ostream& out);

}  // namespace lockstep
