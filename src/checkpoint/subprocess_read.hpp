// Reads a file in a child process and receives its content through a pipe, so that a damaged file causes an error
// instead of a crash. This adds tens of milliseconds for a model of 10 MB.
#pragma once

#include "checkpoint/model_data.hpp"
#include "checkpoint/subprocess.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>

namespace lockstep {

/// Sends what `read` has read. Runs in the child.
using SendResult = std::function<void(PipeWriter&)>;

/// Calls `read` in the child, then the function that `read` returned. `receive` runs in this process and returns false
/// if the child stopped early. Rethrows errors of `read`: DataError and IoError as they are, others as InternalError.
/// Throws DataError if the child crashes, loops, or needs more memory than an intact file of this size, which only a
/// damaged file causes. Throws IoError for anything else: a child that is killed, too little memory, a failing disk.
void read_in_subprocess(const std::filesystem::path& file, const std::function<SendResult()>& read,
                        const std::function<bool(const Subprocess&)>& receive);

/// Calls `read` in the child and returns its model.
[[nodiscard]] ModelData read_model_in_subprocess(const std::filesystem::path& file,
                                                 const std::function<ModelData()>& read);

}  // namespace lockstep
