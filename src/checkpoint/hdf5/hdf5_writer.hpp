// Builds an HDF5 file in memory; AtomicFile then writes the bytes. HDF5 itself never accesses the disk, so it leaves no
// partial files, takes no file locks (which network file systems refuse), and stays usable after a full disk. Equal
// content gives equal bytes.
#pragma once

#include "checkpoint/hdf5/hdf5_file_image.hpp"
#include "checkpoint/hdf5/hdf5_handle.hpp"

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Objects are named by paths from the root, e.g. "model_weights/dense"; missing parent groups are created. A failed
/// HDF5 call is an InternalError, because calls that only use memory should not fail.
class Hdf5Writer {
 public:
  /// `expected` is the approximate size of the file in bytes; memory grows by this much at a time.
  explicit Hdf5Writer(std::size_t expected = 0);

  void create_group(const std::string& path);

  /// Writes a text as variable-length UTF-8, like Keras.
  void set_attribute(const std::string& object, const std::string& name, const std::string& text);

  /// Writes a list of texts like Keras: an empty list is an empty array of float64, and a list that is too long for one
  /// attribute is split into NAME0, NAME1, ...
  void set_attribute(const std::string& object, const std::string& name, const std::vector<std::string>& texts);

  void set_digest(const std::string& object, std::uint64_t digest);

  /// Stores a digest with the values; Hdf5Reader checks it.
  void write_floats(const std::string& path, const Shape& shape, std::span<const float> values);
  void write_scalar(const std::string& path, float value);
  void write_scalar(const std::string& path, std::int64_t value);

  /// Adds the structure digest (see hdf5_digest.hpp) and returns the file, which is valid while this object lives. Call
  /// it once, last.
  [[nodiscard]] std::span<const std::byte> finish();

 private:
  void set_number(const std::string& object, const char* name, std::uint64_t number);
  void set_texts(const std::string& object, const std::string& name, std::span<const std::string> texts, bool scalar);
  void write(const std::string& path, std::int64_t file_type, std::int64_t memory_type, const Shape& shape,
             const void* values);

  Hdf5ErrorSuppressor error_suppressor_;
  Hdf5FileImage memory_;
  Hdf5Handle file_;
};

}  // namespace lockstep
