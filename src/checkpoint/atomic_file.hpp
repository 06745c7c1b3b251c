// Writes files atomically: writes a temporary file beside the target, synchronizes it (fsync) and renames it. Readers
// never see a partial file, and the previous file stays until the new one is durable, even after a crash or on a full
// disk.
#pragma once

#include "core/file_descriptor.hpp"
#include "ownership/write_guard.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// A file under construction, for writers that write in several calls.
///
///   AtomicFile file("model.h5");   // creates missing directories and ".model.h5.1f09c3d2.tmp"
///   file.write(bytes);
///   file.commit();                 // model.h5 is now the new file
///
/// Temporary names are random and each temporary file is locked (flock) while its writer lives, so any number of
/// processes, containers and hosts may write one target: each commit publishes the whole file of one writer. SIGKILL
/// leaves the temporary file behind, without its lock; the next AtomicFile for the same target removes it. A new file
/// has the permissions of the file that it replaces. A symbolic link stays: the file that it names is replaced. Errors
/// are IoError, or what the guard throws. The temporary file is removed before the error is thrown, because an uncaught
/// exception runs no destructors.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target, WriteGuard guard = require_not_owned_by_another);
  ~AtomicFile();  ///< removes the temporary file unless it was committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// The temporary file, which exists and is empty after construction.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return temporary_; }

  /// Says how many bytes will be written in all, for the message of a full disk.
  void expect(std::size_t bytes) noexcept { expected_ = bytes; }

  /// Writes where the last write ended.
  void write(std::span<const std::byte> content) { write_at(position_, content); }

  /// Writes at an offset of the temporary file.
  void write_at(std::size_t offset, std::span<const std::byte> content);

  /// Makes the temporary file durable and renames it to the target.
  void commit();

 private:
  [[noreturn]] void discard_and_throw(int error, std::size_t needed = 0);

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  WriteGuard guard_;
  FileDescriptor file_;  ///< holds the lock until the end
  std::size_t position_ = 0;
  std::size_t expected_ = 0;
  bool committed_ = false;
};

/// A random name for what will be renamed to `target`, a name: ".model.h5.1f09c3d2.tmp". Throws IoError.
[[nodiscard]] std::string temporary_name(std::string_view target);

/// The name for which temporary_name() made this one, "model.h5"; empty for other names.
[[nodiscard]] std::string_view target_of(std::string_view name);

/// Throws IoError unless the file can be created, or replaced as a whole. Leaves it as it is. Call it before training,
/// not after hours of it.
void require_writable(const std::filesystem::path& target);

/// Writes a whole file atomically.
void write_file_atomically(const std::filesystem::path& target, std::span<const std::byte> content,
                           const WriteGuard& guard = require_not_owned_by_another);

/// Removes the temporary files of dead writers of the files in `directory` that `is_target` accepts by name. Failures
/// are harmless and not reported.
void remove_abandoned_files(const std::filesystem::path& directory,
                            const std::function<bool(std::string_view)>& is_target) noexcept;

}  // namespace lockstep
