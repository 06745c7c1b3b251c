// Reads HDF5 files from untrusted sources: checks every declared size against the file's size before it allocates
// memory, and does not follow links to other files or external storage.
#pragma once

#include "checkpoint/hdf5/hdf5_handle.hpp"

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Refuses files of Hdf5Writer whose structure digest does not match (see hdf5_digest.hpp), so all names, shapes and
/// texts are as written. Files from other writers have no digests. Objects are named by paths from the root. Errors
/// name the file: IoError if it cannot be opened; DataError if it is not HDF5, is damaged, or lacks the requested
/// object.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(std::filesystem::path file);

  /// Opens a copy of a file in memory; `name` is for messages. (The span is mutable only because HDF5's API requires
  /// it.)
  Hdf5Reader(std::span<std::byte> image, std::filesystem::path name);

  /// True if a group or dataset exists at `path`.
  [[nodiscard]] bool has(const std::string& path) const;

  [[nodiscard]] bool is_group(const std::string& path) const;

  /// A text attribute of fixed or variable length; nullopt if the object lacks it.
  [[nodiscard]] std::optional<std::string> read_string(const std::string& object, const std::string& attribute) const;

  /// True if read_strings() finds a list.
  [[nodiscard]] bool has_strings(const std::string& object, const std::string& attribute) const;

  /// A list of texts, which Keras may have split into NAME0, NAME1, ...
  [[nodiscard]] std::vector<std::string> read_strings(const std::string& object, const std::string& attribute) const;

  /// The names of a group's members in order, without soft and external links.
  [[nodiscard]] std::vector<std::string> child_names(const std::string& group) const;

  /// The shape of a floating-point dataset; nullopt for other objects.
  [[nodiscard]] std::optional<Shape> shape_of(const std::string& path) const;

  /// Whether a changed byte would be noticed. Only Hdf5Writer writes checksums.
  [[nodiscard]] bool has_checksums() const;

  /// The digest that Hdf5Writer stored with an object; nullopt in files from other writers.
  [[nodiscard]] std::optional<std::uint64_t> read_digest(const std::string& object) const;

  /// Reads a floating-point dataset of this shape, or one whole number, as float. Checks its digest if it has one.
  [[nodiscard]] std::vector<float> read_floats(const std::string& path, const Shape& shape) const;

  /// Reads a dataset of one integer. Checks its digest if it has one.
  [[nodiscard]] std::int64_t read_integer(const std::string& path) const;

  /// Throws DataError: "FILE: problem"; IoError if a read of the file failed.
  [[noreturn]] void fail(const std::string& problem) const;

  /// The message of fail().
  [[nodiscard]] std::string describe(const std::string& problem) const;

 private:
  [[noreturn]] void fail_damaged(const std::string& path, const std::string& reason) const;
  [[nodiscard]] Hdf5Handle open(const std::string& path) const;
  [[nodiscard]] Hdf5Handle open_dataset(const std::string& path) const;
  [[nodiscard]] std::optional<Shape> shape_of(const std::string& path, bool or_integers) const;
  void check_structure_digest() const;
  [[nodiscard]] std::optional<std::uint64_t> read_number(const std::string& object, const char* name) const;
  void check_digest(const std::string& path, const void* values, std::size_t bytes) const;
  [[nodiscard]] std::vector<std::string> read_string_attribute(const Hdf5Handle& object, const std::string& name) const;

  Hdf5ErrorSuppressor error_suppressor_;
  std::filesystem::path name_;
  std::uint64_t size_ = 0;
  Hdf5Handle file_;
};

}  // namespace lockstep
