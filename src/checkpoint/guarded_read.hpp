// Reads a file in a child process and takes what it held from a pipe, so that a damaged file costs no more than a
// message. The way there and back takes some tens of milliseconds for a model of ten megabytes.
#pragma once

#include "checkpoint/child_process.hpp"
#include "checkpoint/saved_model.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>

namespace lockstep {

/// What sends a thing that was read.
using SendResult = std::function<void(ChildOutput&)>;

/// In the child, `read` reads the file; what it returns sends the result. Here `receive` takes it, and says false if
/// the child broke off. Errors of `read` are thrown here: DataError, IoError, others as InternalError. If the child
/// dies or does not come to an end, that is a DataError, for nothing but a damaged file makes it do so.
void read_guarded(const std::filesystem::path& file, const std::function<SendResult()>& read,
                  const std::function<bool(const ChildProcess&)>& receive);

/// The same for a whole model.
[[nodiscard]] SavedModel read_model_guarded(const std::filesystem::path& file, const std::function<SavedModel()>& read);

}  // namespace lockstep
