// See session_directories.hpp.
#include "cluster/session_directories.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "core/environment.hpp"
#include "core/log.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr const char* shared_memory = "/dev/shm";
constexpr const char* prefix = "lockstep-world-";

/// Readable by this user only. "" where it cannot be made.
std::string make_directory_in(const std::string& parent) {
  std::string path = (std::filesystem::path(parent) / (std::string(prefix) + "XXXXXX")).string();
  return mkdtemp(path.data()) == nullptr ? std::string() : path;
}

}  // namespace

SessionDirectories::SessionDirectories() {
  std::string tried;
  for (const std::string& parent :
       {value_of(current_environment(), "TMPDIR"), std::string("/tmp"), std::string(shared_memory)}) {
    if (parent.empty()) continue;
    files_ = make_directory_in(parent);
    if (!files_.empty()) break;
    tried += (tried.empty() ? "" : ", ") + parent;
  }
  if (files_.empty()) {
    throw IoError("no directory for temporary files can be written (tried " + tried +
                  "); set TMPDIR to one, in a pod with a read-only root to an emptyDir");
  }
  memory_ = make_directory_in(shared_memory);
}

SessionDirectories::~SessionDirectories() {
  remove_session_directory(files_);
  remove_session_directory(memory_);
}

void remove_session_directory(const std::string& directory) noexcept {
  try {
    const std::filesystem::path path(directory);
    if (!path.is_absolute() || !path.filename().string().starts_with(prefix)) return;
    std::error_code error;
    std::filesystem::remove_all(path, error);
    // A rank that was just killed may have added something meanwhile.
    if (error) std::filesystem::remove_all(path, error);
    if (error) log_warning("cannot delete " + directory + ": " + error.message());
  } catch (...) {  // no memory: the directory stays
  }
}

}  // namespace lockstep
