// Writers of valid and damaged data files, independent of the readers under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

using Bytes = std::vector<std::uint8_t>;

void write_file(const std::filesystem::path& path, const Bytes& bytes);

[[nodiscard]] std::span<const std::byte> as_bytes(const Bytes& bytes);

/// `count` values 0, 1, 2, ... modulo `modulus`.
[[nodiscard]] Bytes counting(std::size_t count, unsigned modulus = 251);

[[nodiscard]] Bytes idx(const std::vector<std::uint32_t>& extents, const Bytes& payload);
[[nodiscard]] Bytes gzip(const Bytes& content);

/// A .npy file: `dictionary` is the header's text, padded as NumPy pads it.
[[nodiscard]] Bytes npy(const std::string& dictionary, const Bytes& payload, int version = 1);
[[nodiscard]] std::string npy_dictionary(const std::string& descr, const std::string& shape);

/// The bytes of values in this machine's byte order, which is little-endian as in the files.
template <typename T>
[[nodiscard]] Bytes bytes_of(const std::vector<T>& values) {
  const auto raw = std::as_bytes(std::span(values));
  const auto* first = reinterpret_cast<const std::uint8_t*>(raw.data());
  return {first, first + raw.size()};
}

/// A zip archive of members (name with extension, content).
[[nodiscard]] Bytes zip_archive(const std::vector<std::pair<std::string, Bytes>>& members, bool deflate);

/// 64-bit FNV-1a of the bytes, for comparisons with known content.
[[nodiscard]] std::uint64_t digest_of(std::span<const std::uint8_t> bytes);

/// The message of the exception of type `E` that `action` throws; "" if it throws none.
template <typename E, typename Action>
[[nodiscard]] std::string message_of(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

/// Returns "" if the message contains all words and ends without a full stop, otherwise the problem.
[[nodiscard]] std::string lacking(const std::string& message, const std::vector<std::string>& words);

}  // namespace lockstep::test
