// See saved_model.hpp.
#include "cli/saved_model.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/file_system.hpp"
#include "core/publish_directory.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr int has_no_keras = 3;
constexpr int has_failed_call = 4;

// Exits with has_no_keras if a package is missing, and with has_failed_call if a file could not be read or written:
// h5py raises an OSError without a number for a damaged file, TensorFlow errors of its own for a full disk.
// TensorFlow's logs are left out, but not why Keras failed.
const char* const program = R"(
import os, sys
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
errors = os.fdopen(os.dup(2), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
try:
    import tensorflow, keras
except ImportError:
    os._exit(3)
try:
    keras.models.load_model(sys.argv[1], compile=False).export(sys.argv[2], format="tf_saved_model", verbose=False)
except Exception as error:
    print(f"Keras: {error}", file=errors)
    sys.exit(4 if getattr(error, "errno", None) or "No space left" in str(error) else 1)
)";

/// Returns the exit code; has_no_keras if there is no python3. Throws InternalError if it is killed.
int run_python(const fs::path& model, const fs::path& directory) {
  std::string name = "python3";
  std::string option = "-c";
  std::string text = program;
  std::string from = model.string();
  std::string to = directory.string();
  const std::array<char*, 6> arguments{name.data(), option.data(), text.data(), from.data(), to.data(), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, name.c_str(), nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) return has_no_keras;
  if (error != 0) throw_io_error("cannot start python3", error);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw_io_error("cannot wait for python3", errno);
  }
  if (WIFSIGNALED(status)) {
    throw InternalError(fmt::format("python3 was killed by signal {} as Keras exported {}; look for a limit of memory",
                                    WTERMSIG(status), model.string()));
  }
  return WEXITSTATUS(status);
}

/// Removes it in the end, unless it got another name.
struct TemporaryDirectory {
  fs::path path;
  ~TemporaryDirectory() {
    std::error_code unknown;
    fs::remove_all(path, unknown);
  }
};

}  // namespace

void write_saved_model(const fs::path& model, const fs::path& target) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(target, error))) {
    throw UsageError(
        fmt::format("--output {} exists, and a SavedModel is a new directory; choose another name", target.string()));
  }
  create_directories_durably(directory_of(target));
  // Keras writes many files. The directory gets its name when all of them are there.
  const fs::path temporary = directory_of(target) / temporary_name(target.filename().string());
  const TemporaryDirectory removed{temporary};
  const int code = run_python(model, temporary);
  if (code == has_no_keras) {
    throw UsageError(
        "--format saved-model runs Keras, and the python3 on PATH lacks Keras or TensorFlow; install them with "
        "pip install keras tensorflow, or choose --format onnx");
  }
  if (code == has_failed_call) {
    throw IoError(
        fmt::format("Keras could not read {} or write {}; its message is above", model.string(), target.string()));
  }
  if (code != 0) throw DataError(fmt::format("Keras could not export {}; its message is above", model.string()));
  publish_directory(temporary, target);
}

}  // namespace lockstep
