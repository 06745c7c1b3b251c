// Where the processes of one generation leave what a kill -9 keeps them from deleting: session files of PMIx and MPI,
// and the files in /dev/shm that are the shared memory between ranks. Two directories of this generation's own, so that
// cleaning up is deleting them, and nobody else's files are ever looked at.
#pragma once

#include <string>

namespace lockstep {

class SessionDirectories {
 public:
  /// In $TMPDIR, /tmp or /dev/shm, the first that can be written; and in /dev/shm. Throws IoError where there is none.
  SessionDirectories();
  ~SessionDirectories();
  SessionDirectories(const SessionDirectories&) = delete;
  SessionDirectories& operator=(const SessionDirectories&) = delete;

  [[nodiscard]] const std::string& files() const noexcept { return files_; }
  [[nodiscard]] const std::string& memory() const noexcept { return memory_; }  ///< "" where /dev/shm cannot be used

 private:
  std::string files_;
  std::string memory_;
};

/// With all in it; as far as that goes. Does nothing with "", and refuses what SessionDirectories would not have made.
void remove_session_directory(const std::string& directory) noexcept;

}  // namespace lockstep
