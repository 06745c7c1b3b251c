// Reads npz, the format of Keras' own datasets: a zip archive of NumPy arrays, stored or deflated.
#pragma once

#include "data/npy.hpp"

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

struct zip;  // libzip's

namespace lockstep {

class NpzArchive {
 public:
  /// `file` must outlive the archive; `name` is for messages. Throws DataError unless it is a zip archive.
  NpzArchive(std::span<const std::byte> file, std::string name);

  /// Returns the array that NumPy calls `key`: the archive's member "key.npy". Throws DataError, naming the member and
  /// the offset, if it is missing, damaged, or not an array that `parse_npy_header` supports.
  [[nodiscard]] NpyArray read(const std::string& key) const;

  [[nodiscard]] bool has(const std::string& key) const;

  /// The first dimension of an array of numbers; nullopt for other arrays, such as texts, and for damaged ones.
  [[nodiscard]] std::optional<std::int64_t> length_of(const std::string& key) const;

  /// The names of all arrays.
  [[nodiscard]] std::vector<std::string> keys() const;

 private:
  struct Discard {
    void operator()(zip* archive) const noexcept;
  };

  std::string name_;
  std::size_t bytes_;  ///< of the file
  std::unique_ptr<zip, Discard> archive_;
};

}  // namespace lockstep
