// Temporary directories of one generation, for files that killed processes cannot delete themselves: session files of
// PMIx and MPI, and shared memory in /dev/shm. Each generation has its own directories, so cleanup never touches other
// files.
#pragma once

#include <string>

namespace lockstep {

class SessionDirectories {
 public:
  /// Creates one directory in the first writable of $TMPDIR, /tmp and /dev/shm, and one in /dev/shm. Throws IoError if
  /// none is writable.
  SessionDirectories();
  ~SessionDirectories();
  SessionDirectories(const SessionDirectories&) = delete;
  SessionDirectories& operator=(const SessionDirectories&) = delete;

  [[nodiscard]] const std::string& files() const noexcept { return files_; }
  [[nodiscard]] const std::string& memory() const noexcept { return memory_; }  ///< "" if /dev/shm is not writable

 private:
  std::string files_;
  std::string memory_;
};

/// Deletes a directory that SessionDirectories made, with its contents; logs a warning on failure. Ignores "" and any
/// other directory.
void remove_session_directory(const std::string& directory) noexcept;

}  // namespace lockstep
