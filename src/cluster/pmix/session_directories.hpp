// Temporary directories of one generation, for files that killed processes cannot delete themselves: session files of
// PMIx and MPI, and shared memory in /dev/shm. Each generation has its own directories, so cleanup never touches other
// files.
//
// A process that is killed with SIGKILL leaves its directories behind, and those in /dev/shm take memory. Each
// directory holds a file that its owner keeps locked, so the next launch of the same user knows which ones have no
// owner.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cluster/net/socket.hpp"

namespace lockstep {

class SessionDirectories {
 public:
  /// Deletes what dead launchers of this user have left, and creates one directory in the first writable of $TMPDIR,
  /// /tmp and /dev/shm, and one in /dev/shm. Throws IoError if none is writable.
  SessionDirectories();
  ~SessionDirectories();
  SessionDirectories(const SessionDirectories&) = delete;
  SessionDirectories& operator=(const SessionDirectories&) = delete;

  [[nodiscard]] const std::string& files() const noexcept { return files_; }
  [[nodiscard]] const std::string& memory() const noexcept { return memory_; }  ///< "" if /dev/shm is not writable

 private:
  std::string files_;
  std::string memory_;
  std::vector<Socket> locks_;  ///< of the owner files
};

/// Deletes directories of SessionDirectories in `parent` that belong to this user and whose owner has ended. Returns
/// how many.
std::size_t sweep_session_directories(const std::string& parent) noexcept;

/// Deletes a directory that SessionDirectories made, with its contents; logs a warning on failure. Ignores "" and any
/// other directory.
void remove_session_directory(const std::string& directory) noexcept;

}  // namespace lockstep
