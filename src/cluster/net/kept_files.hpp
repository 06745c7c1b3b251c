// Files that a launcher keeps open for its trainers, since a lock ends when nobody has its file open. A trainer sends
// them over the socket pair; those of later generations inherit them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file_descriptor.hpp"

namespace lockstep {

/// KeptFiles::numbers() for a trainer.
inline constexpr const char* kept_files_variable = "LOCKSTEP_KEPT_FILES";

/// Those of a launcher.
class KeptFiles {
 public:
  static constexpr std::size_t max_directories = 64;

  KeptFiles() = default;
  /// With the files that the launcher itself has inherited: the caller's of `lockstep.fit`.
  explicit KeptFiles(std::vector<FileDescriptor> files) : files_(std::move(files)) {}

  /// Also closes those that were removed from their directories. Returns false for a lock of one directory more than
  /// max_directories, which it does not keep.
  [[nodiscard]] bool add(FileDescriptor file);

  /// Lets the program that this process executes next inherit the files.
  void let_inherit() const noexcept;
  /// The descriptors, for kept_files_variable: "7,9".
  [[nodiscard]] std::string numbers() const;

 private:
  std::vector<FileDescriptor> files_;
};

/// Duplicates of those that this process has inherited, oldest first.
[[nodiscard]] std::vector<FileDescriptor> inherited_files();

/// The byte that send_file() sends: no report begins with it.
inline constexpr char no_message = 0;

/// Sends a duplicate of the descriptor with the byte no_message. Returns false and sets errno if it cannot be sent.
[[nodiscard]] bool send_file(int socket, const FileDescriptor& file) noexcept;

struct ReceivedMessage {
  ssize_t count = -1;     ///< as of recv()
  pid_t sender = -1;      ///< if the socket has SO_PASSCRED; -1: unknown
  FileDescriptor file{};  ///< valid if the message brought one, and this process had a free descriptor
};

/// Receives a message, and at most one file with it.
[[nodiscard]] ReceivedMessage receive_message(int socket, std::span<char> bytes) noexcept;

}  // namespace lockstep
