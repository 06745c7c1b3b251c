// Reads an HDF5 file that anybody may have written: whatever it claims is checked against its size before memory is
// asked for, and nothing outside it (links to other files, external storage) is followed.
#pragma once

#include "checkpoint/hdf5_handle.hpp"

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A file that Hdf5Writer made is only opened if its seal is whole (see hdf5_seal.hpp), so that every name, shape and
/// text in it is as it was; a file of others has none. Objects are named by paths from the root. Errors name the file:
/// IoError where it cannot be opened, DataError where it is not HDF5, is damaged, or lacks what is asked for.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(std::filesystem::path file);

  /// A file that lies in memory, which is copied (that HDF5 wants it mutable is for drivers of one's own); `name` is
  /// for messages.
  Hdf5Reader(std::span<std::byte> image, std::filesystem::path name);

  /// Whether a group or a data set of this name exists.
  [[nodiscard]] bool has(const std::string& path) const;

  [[nodiscard]] bool is_group(const std::string& path) const;

  /// A text attribute of fixed or variable length; nothing if there is none.
  [[nodiscard]] std::optional<std::string> text(const std::string& object, const std::string& attribute) const;

  /// Whether an object has such a list.
  [[nodiscard]] bool has_texts(const std::string& object, const std::string& attribute) const;

  /// A list of texts, also one that Keras cut into NAME0, NAME1, ...
  [[nodiscard]] std::vector<std::string> texts(const std::string& object, const std::string& attribute) const;

  /// The names of what lies in a group, in order; links elsewhere are left out.
  [[nodiscard]] std::vector<std::string> children(const std::string& group) const;

  /// The shape of a data set of floating-point numbers; nothing if the object is something else.
  [[nodiscard]] std::optional<Shape> shape_of(const std::string& path) const;

  /// The digest that Hdf5Writer gave an object; nothing in files of others.
  [[nodiscard]] std::optional<std::uint64_t> digest(const std::string& object) const;

  /// A data set of floating-point numbers of this shape, converted to float. If it has a digest, its values agree.
  [[nodiscard]] std::vector<float> floats(const std::string& path, const Shape& shape) const;

  /// A data set of one integer. If it has a digest, its value agrees.
  [[nodiscard]] std::int64_t integer(const std::string& path) const;

  /// Throws DataError: "FILE: problem".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  [[nodiscard]] Hdf5Handle open(const std::string& path) const;
  [[nodiscard]] Hdf5Handle open_dataset(const std::string& path) const;
  void check_seal() const;
  [[nodiscard]] std::optional<std::uint64_t> number(const std::string& object, const char* name) const;
  void check_digest(const std::string& path, const void* values, std::size_t bytes) const;
  [[nodiscard]] std::vector<std::string> attribute_texts(const Hdf5Handle& object, const std::string& name) const;

  Hdf5Silence silence_;
  std::filesystem::path name_;
  std::uint64_t size_ = 0;
  Hdf5Handle file_;
};

}  // namespace lockstep
