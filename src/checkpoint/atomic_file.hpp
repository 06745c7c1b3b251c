// Files that appear whole or not at all: written under a temporary name beside the target, synchronised, renamed. A
// reader, a crash or a full disk never sees half a file, and the earlier file stays until the new one is safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

/// A file under construction, for whoever writes by a path of its own (a library, several calls).
///
///   AtomicFile file("model.h5");   // creates missing directories and ".model.h5.<pid>.tmp"
///   ... write file.path() and close it ...
///   file.commit();                 // now model.h5 is the new file
///
/// A process writes one target from one thread at a time. SIGKILL leaves the temporary file behind; the next AtomicFile
/// of the same target removes those whose process is gone. If the target is a symbolic link, the link is replaced.
/// All errors are IoError; after one the temporary file is gone, also where nobody catches it and no destructor runs.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();  ///< removes the temporary file unless it was committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// The temporary file: it exists and is empty.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return temporary_; }

  /// Appends to the temporary file.
  void write(std::span<const std::byte> content);

  /// Makes the temporary file durable and gives it the target's name.
  void commit();

 private:
  [[noreturn]] void give_up(int error, std::size_t needed = 0);

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

/// The whole content at once.
void write_file_atomically(const std::filesystem::path& target, std::span<const std::byte> content);

}  // namespace lockstep
