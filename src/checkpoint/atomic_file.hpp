// Writes files atomically: writes a temporary file beside the target, synchronizes it (fsync) and renames it. Readers
// never see a partial file, and the previous file stays until the new one is durable, even after a crash or on a full
// disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

/// A file under construction, for writers that need a path or several calls.
///
///   AtomicFile file("model.h5");   // creates missing directories and ".model.h5.<pid>.tmp"
///   ... write file.path() and close it ...
///   file.commit();                 // model.h5 is now the new file
///
/// At most one thread of a process may write a target at a time. SIGKILL leaves the temporary file behind; the next
/// AtomicFile for the same target removes the files of dead processes. A target that is a symbolic link is replaced.
/// All errors are IoError. The temporary file is removed before the error is thrown, because an uncaught exception runs
/// no destructors.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();  ///< removes the temporary file unless it was committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// The temporary file, which exists and is empty after construction.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return temporary_; }

  /// Appends to the temporary file.
  void write(std::span<const std::byte> content);

  /// Makes the temporary file durable and renames it to the target.
  void commit();

 private:
  [[noreturn]] void discard_and_throw(int error, std::size_t needed = 0);

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

/// Writes a whole file atomically.
void write_file_atomically(const std::filesystem::path& target, std::span<const std::byte> content);

}  // namespace lockstep
