// Builds an HDF5 file in memory. Nothing of HDF5 then touches the disk: no half-written file, no file locks (which
// network file systems refuse), no library left in disorder by a full disk; the bytes go out through AtomicFile.
// The same content gives the same bytes.
#pragma once

#include "checkpoint/hdf5_handle.hpp"
#include "checkpoint/hdf5_memory.hpp"

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Objects are named by paths from the root, "model_weights/dense"; missing groups on the way are made. A failed call
/// into the library is an InternalError: with memory to spare it has no reason to fail.
class Hdf5Writer {
 public:
  /// `expected`: about how many bytes the file will have; memory is taken by as much at a time.
  explicit Hdf5Writer(std::size_t expected = 0);

  void make_group(const std::string& path);

  /// Text attributes are UTF-8 of variable length, as Keras writes them.
  void set_attribute(const std::string& object, const std::string& name, const std::string& text);

  /// A list, as Keras writes them: an empty one is an empty array of float64, and one too long for an attribute is cut
  /// into NAME0, NAME1, ...
  void set_attribute(const std::string& object, const std::string& name, const std::vector<std::string>& texts);

  void set_digest(const std::string& object, std::uint64_t digest);

  /// All data sets get a digest of their values, which Hdf5Reader checks.
  void write_floats(const std::string& path, const Shape& shape, std::span<const float> values);
  void write_scalar(const std::string& path, float value);
  void write_scalar(const std::string& path, std::int64_t value);

  /// The finished file, sealed (see hdf5_seal.hpp), for as long as this lives. Call it last, once.
  [[nodiscard]] std::span<const std::byte> finish();

 private:
  void set_number(const std::string& object, const char* name, std::uint64_t number);
  void set_texts(const std::string& object, const std::string& name, std::span<const std::string> texts, bool scalar);
  void write(const std::string& path, hid_t file_type, hid_t memory_type, const Shape& shape, const void* values);

  Hdf5Silence silence_;
  Hdf5Memory memory_;
  Hdf5Handle file_;
};

}  // namespace lockstep
