// See data_files.hpp.
#include "unit/data/data_files.hpp"

#include "core/digest.hpp"

#include "support/scratch_directory.hpp"

#include <zip.h>
#include <zlib.h>

#include <fstream>
#include <stdexcept>

namespace lockstep::test {

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("the test cannot prepare its files: ") + what);
}

}  // namespace

void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require(file.good(), "write");
}

std::span<const std::byte> as_bytes(const Bytes& bytes) { return std::as_bytes(std::span(bytes)); }

Bytes counting(std::size_t count, unsigned modulus) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i % modulus);
  return bytes;
}

Bytes idx(const std::vector<std::uint32_t>& extents, const Bytes& payload) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) bytes.push_back(static_cast<std::uint8_t>(extent >> shift));
  }
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

Bytes gzip(const Bytes& content) {
  z_stream stream{};
  require(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
  Bytes packed(deflateBound(&stream, content.size()) + 32);
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  const int status = deflate(&stream, Z_FINISH);
  packed.erase(packed.end() - stream.avail_out, packed.end());
  deflateEnd(&stream);
  require(status == Z_STREAM_END, "deflate");
  return packed;
}

std::string npy_dictionary(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

Bytes npy(const std::string& dictionary, const Bytes& payload, int version) {
  const std::size_t preamble = version == 1 ? 10 : 12;
  std::string text = dictionary;
  while ((preamble + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  Bytes bytes{0x93, 'N', 'U', 'M', 'P', 'Y', static_cast<std::uint8_t>(version), 0};
  for (unsigned shift = 0; shift < (version == 1 ? 16U : 32U); shift += 8) {
    bytes.push_back(static_cast<std::uint8_t>(text.size() >> shift));
  }
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

Bytes zip_archive(const std::vector<std::pair<std::string, Bytes>>& members, bool deflate) {
  const testing::ScratchDirectory directory;
  const auto path = directory.path() / "archive.zip";
  int error = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  require(archive != nullptr, "zip_open");
  for (const auto& [name, content] : members) {
    zip_source_t* source = zip_source_buffer(archive, content.data(), content.size(), 0);
    require(source != nullptr, "zip_source_buffer");
    const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
    require(index >= 0, "zip_file_add");
    const zip_int32_t method = deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE;
    require(zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), method, 0) == 0, "compression");
  }
  require(zip_close(archive) == 0, "zip_close");
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::uint64_t digest_of(std::span<const std::uint8_t> bytes) {
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string lacking(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (message.find(word) == std::string::npos) return "no '" + word + "' in: " + message;
  }
  return message.empty() || message.back() == '.' ? "empty or with a full stop: " + message : "";
}

}  // namespace lockstep::test
