// See session_directories.hpp.
#include "cluster/pmix/session_directories.hpp"

#include "core/environment.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {

namespace {

constexpr const char* shared_memory = "/dev/shm";
constexpr const char* prefix = "lockstep-world-";

/// Makes a directory that only this user can access; returns "" on failure.
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
    throw IoError(
        fmt::format("no writable directory for temporary files (tried {}); set TMPDIR, in a pod with a read-only "
                    "root filesystem to an emptyDir",
                    tried));
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
    // A rank that was just killed may have added a file meanwhile.
    if (error) std::filesystem::remove_all(path, error);
    if (error) log_warning(fmt::format("cannot delete {}: {}", directory, error.message()));
  } catch (...) {  // out of memory: the directory stays
  }
}

}  // namespace lockstep
