// See saved_model.hpp.
#include "cli/saved_model.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/file_descriptor.hpp"
#include "core/file_system.hpp"
#include "core/publish_directory.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <system_error>
#include <thread>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr int has_no_keras = 3;
constexpr int has_failed_call = 4;
constexpr int cannot_start = 126;
constexpr std::chrono::milliseconds poll_interval{50};
constexpr std::array interrupting_signals{SIGTERM, SIGINT, SIGHUP};

// Exits with has_no_keras if a package is missing, and with has_failed_call if a file could not be read or written:
// h5py raises an OSError without a number for a damaged file, TensorFlow errors of its own for a full disk.
// TensorFlow's logs are left out, but not why Keras failed. Modules come from where Python keeps them, not from the
// working directory (the empty entry), whose files may have the names of others.
const char* const program = R"(
import sys
sys.path = [entry for entry in sys.path if entry]
import os
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

/// Holds back the signals that end this process, but for those that it ignores. One that came meanwhile ends it when
/// the object does.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int number : interrupting_signals) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&held_, number);
    }
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { restore(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  void restore() const noexcept { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// Whether one has come.
  [[nodiscard]] bool has_come() const noexcept {
    sigset_t pending{};
    sigpending(&pending);
    return std::ranges::any_of(interrupting_signals, [&](int number) {
      return sigismember(&held_, number) == 1 && sigismember(&pending, number) == 1;
    });
  }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

[[noreturn]] void become_python(const fs::path& model, const fs::path& directory) {
  std::string name = "python3";
  std::string option = "-c";
  std::string text = program;
  std::string from = model.string();
  std::string to = directory.string();
  const std::array<char*, 6> arguments{name.data(), option.data(), text.data(), from.data(), to.data(), nullptr};
  ::execvp(name.c_str(), arguments.data());
  ::_exit(errno == ENOENT ? has_no_keras : cannot_start);
}

/// Returns the exit code; has_no_keras if there is no python3. Throws InternalError if Python is killed, and Error with
/// ExitCode::temporary if a signal comes that ends this process. Python ends with this process.
int run_python(const fs::path& model, const fs::path& directory, const HeldSignals& signals) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw_io_error("cannot start python3", errno);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(cannot_start);  // it died before
    signals.restore();
    become_python(model, directory);
  }
  int status = 0;
  for (bool is_killed = false; true;) {
    const pid_t ended = ::waitpid(child, &status, is_killed ? 0 : WNOHANG);
    // The signal ends this process as soon as it is restored, unless a library handles it: UCX, which Open MPI links on
    // Debian 13, takes SIGHUP for a switch of its log.
    if (ended == child && is_killed) throw Error(ExitCode::temporary, "the export was interrupted");
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) throw_io_error("cannot wait for python3", errno);
    if (signals.has_come()) {
      is_killed = ::kill(child, SIGKILL) == 0;
    } else {
      std::this_thread::sleep_for(poll_interval);
    }
  }
  if (WIFSIGNALED(status)) {
    throw InternalError(fmt::format("python3 was killed by signal {} as Keras exported {}; look for a limit of memory",
                                    WTERMSIG(status), model.string()));
  }
  return WEXITSTATUS(status);
}

/// A new directory beside `target`, which is removed in the end. Its lock tells that this process lives: what others
/// left behind is removed.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const fs::path& target) {
    const fs::path parent = directory_of(target);
    const std::string name = target.filename().string();
    remove_abandoned(parent, name);
    do {
      path_ = parent / temporary_name(name);
      if (::mkdir(path_.c_str(), 0777) != 0) {
        if (errno == EEXIST) continue;
        throw_io_error("cannot write " + target.string(), errno);
      }
      lock_ = open(path_);
      if (!lock_.valid() && errno != ENOENT) throw_io_error("cannot read " + path_.string(), errno);
      // Until it is locked, another process may take it for an abandoned one.
    } while (!lock_.valid() || try_lock(lock_) == EWOULDBLOCK || !is_path_of(path_, lock_));
  }
  ~TemporaryDirectory() {
    std::error_code unknown;
    fs::remove_all(path_, unknown);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

 private:
  static FileDescriptor open(const fs::path& directory) { return {directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW}; }

  static void remove_abandoned(const fs::path& parent, const std::string& name) {
    std::error_code unknown;  // one that stays is removed the next time
    for (fs::directory_iterator entry(parent, unknown); !unknown && entry != fs::directory_iterator();
         entry.increment(unknown)) {
      const std::string each = entry->path().filename().string();
      if (name.empty() || target_of(each) != name) continue;
      const FileDescriptor lock = open(entry->path());
      std::error_code stays;
      if (lock.valid() && try_lock(lock) == 0) fs::remove_all(entry->path(), stays);
    }
  }

  fs::path path_;
  FileDescriptor lock_;
};

}  // namespace

void write_saved_model(const fs::path& model, const fs::path& output) {
  const fs::path target = output.has_filename() ? output : output.parent_path();  // without a slash at its end
  std::error_code error;
  if (fs::exists(fs::symlink_status(target, error))) {
    throw UsageError(
        fmt::format("--output {} exists, and a SavedModel is a new directory; choose another name", target.string()));
  }
  create_directories_durably(directory_of(target));
  const HeldSignals signals;
  const TemporaryDirectory temporary(target);
  const fs::path made = temporary.path() / "saved_model";
  const int code = run_python(model, made, signals);
  if (code == cannot_start) throw IoError("cannot start python3, which is on PATH; look at its permissions");
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
  // Keras writes many files. The directory gets its name when all of them are there.
  publish_directory(made, target);
}

}  // namespace lockstep
