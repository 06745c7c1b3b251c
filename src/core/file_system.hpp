// Calls on files and directories: durable directories, locks, and errors with their remedies.
#pragma once

#include "core/file_descriptor.hpp"

#include <lockstep/core/error.hpp>

#include <filesystem>
#include <string>

namespace lockstep {

/// A disk or a quota is full.
class NoSpaceError : public IoError {
 public:
  using IoError::IoError;
};

/// Throws IoError, or NoSpaceError: "WHAT: No space left on device DETAIL; free some space".
[[noreturn]] void throw_io_error(const std::string& what, int error, const std::string& detail = {});

/// The directory of a file; "." for a bare name.
[[nodiscard]] std::filesystem::path directory_of(const std::filesystem::path& target);

/// The file that a link names, whether it exists or not. A loop of links stays one, which nothing can open.
[[nodiscard]] std::filesystem::path follow_links(std::filesystem::path file);

/// True if the path names the open file.
[[nodiscard]] bool is_path_of(const std::filesystem::path& path, const FileDescriptor& file);

/// Opens an existing file to try its lock. It does not wait for the other end of a FIFO, and does not follow a link.
/// NFS grants an exclusive lock only to a file that is open for writing.
[[nodiscard]] FileDescriptor open_for_lock(const std::filesystem::path& path);

/// Locks a file until its descriptor is closed (flock). Returns 0, EWOULDBLOCK if another process holds the lock, or
/// the errno of a file system without locks.
[[nodiscard]] int try_lock(const FileDescriptor& file);

/// Tries it for so many seconds, since the process that holds the lock may be ending.
[[nodiscard]] int try_lock(const FileDescriptor& file, double seconds);

/// Makes the names in a directory durable. Returns 0 or errno. Some network file systems cannot synchronize directories
/// and return EINVAL, which is not an error.
[[nodiscard]] int sync_directory(const std::filesystem::path& directory);

/// Creates the missing directories of a path and makes them durable, from the top down. Throws IoError.
void create_directories_durably(const std::filesystem::path& directory);

}  // namespace lockstep
