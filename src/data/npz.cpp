// libzip unpacks; sizes are compared before memory is taken for them.
#include "data/npz.hpp"

#include "data/gzip.hpp"
#include "data/input_file.hpp"

#include <lockstep/core/error.hpp>

#include <zip.h>

#include <algorithm>
#include <utility>

namespace lockstep {

namespace {

struct CloseFile {
  void operator()(zip_file_t* file) const noexcept { zip_fclose(file); }
};

std::string text_of(zip_error_t* error) {
  std::string text = zip_error_strerror(error);
  zip_error_fini(error);
  return text;
}

/// One member of the archive, read from its beginning to its end.
class Member {
 public:
  Member(zip_t* archive, const std::string& archive_name, const std::string& path) : name_(archive_name + ":" + path) {
    const zip_int64_t index = zip_name_locate(archive, path.c_str(), 0);
    if (index < 0) {
      throw DataError(archive_name + " has no member " + path + "; write it anew with numpy.savez(file, x_train=..., " +
                      "y_train=..., x_test=..., y_test=...).");
    }
    zip_stat_t status;
    zip_stat_init(&status);
    const bool known = zip_stat_index(archive, static_cast<zip_uint64_t>(index), 0, &status) == 0 &&
                       (status.valid & ZIP_STAT_SIZE) != 0 && (status.valid & ZIP_STAT_COMP_SIZE) != 0;
    if (!known) throw DataError(name_ + " has no size in the archive's directory; fetch the file again.");
    if (status.size > max_data_bytes + npy_prelude_bytes || status.size / max_deflate_ratio > status.comp_size) {
      throw DataError(name_ + " declares " + std::to_string(status.size) + " bytes in " +
                      std::to_string(status.comp_size) + " packed ones, more than can be or than are read at most (" +
                      std::to_string(max_data_bytes) + "); fetch the file again.");
    }
    size_ = static_cast<std::size_t>(status.size);
    file_.reset(zip_fopen_index(archive, static_cast<zip_uint64_t>(index), 0));
    if (file_ == nullptr) {
      throw DataError(name_ + " cannot be unpacked (" + zip_strerror(archive) + "); write it anew with numpy.savez.");
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Reads up to out.size() bytes, fewer only at the member's end, where its check sum is then known to be right.
  [[nodiscard]] std::size_t read(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const zip_int64_t count = zip_fread(file_.get(), out.data() + done, out.size() - done);
      if (count < 0) {
        throw DataError(name_ + " is damaged near its byte " + std::to_string(offset_) + " (" +
                        zip_file_strerror(file_.get()) + "); fetch the file again.");
      }
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
      offset_ += static_cast<std::size_t>(count);
    }
    return done;
  }

 private:
  std::string name_;
  std::size_t size_ = 0;
  std::size_t offset_ = 0;
  std::unique_ptr<zip_file_t, CloseFile> file_;
};

}  // namespace

void NpzArchive::Discard::operator()(zip* archive) const noexcept { zip_discard(archive); }

NpzArchive::NpzArchive(std::span<const std::byte> file, std::string name) : name_(std::move(name)) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(file.data(), file.size(), 0, &error);
  if (source != nullptr) archive_.reset(zip_open_from_source(source, ZIP_RDONLY, &error));
  if (archive_ == nullptr) {
    if (source != nullptr) zip_source_free(source);  // an archive owns its source only once it is open
    throw DataError(name_ + " is not a zip archive of " + std::to_string(file.size()) + " bytes (" + text_of(&error) +
                    "); give a file that numpy.savez wrote, or fetch it again.");
  }
  zip_error_fini(&error);
}

NpyArray NpzArchive::read(const std::string& key) const {
  Member member(archive_.get(), name_, key + ".npy");
  std::vector<std::uint8_t> start(npy_prelude_bytes);
  start.resize(member.read(start));
  const std::size_t wanted = npy_header_bytes(start, member.name());
  start.resize(wanted);
  start.resize(npy_prelude_bytes + member.read(std::span(start).subspan(npy_prelude_bytes)));
  const NpyHeader header = parse_npy_header(start, member.name());

  if (member.size() < header.bytes || member.size() - header.bytes != header.payload) {
    throw DataError(member.name() + " declares an array " + header.shape.to_string() + " of '" + descr_of(header.type) +
                    "', " + std::to_string(header.payload) + " bytes from byte " + std::to_string(header.bytes) +
                    " on, but has " + std::to_string(member.size()) + " bytes in all; write it anew with numpy.savez.");
  }
  NpyArray array{header.type, header.shape, std::vector<std::uint8_t>(header.payload)};
  const std::size_t found = member.read(array.bytes);
  std::uint8_t one_more = 0;  // reading on also checks the member's check sum
  if (found != header.payload || member.read(std::span(&one_more, 1)) != 0) {
    throw DataError(member.name() + " does not unpack to the " + std::to_string(member.size()) +
                    " bytes it declares; fetch the file again.");
  }
  return array;
}

}  // namespace lockstep
