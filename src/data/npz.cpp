// See npz.hpp. Reads with libzip; checks declared sizes before it allocates memory.
#include "data/npz.hpp"

#include "core/deflate.hpp"
#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace lockstep {

namespace {

struct CloseFile {
  void operator()(zip_file_t* file) const noexcept { zip_fclose(file); }
};

/// A member of the archive, read sequentially.
class Member {
 public:
  Member(zip_t* archive, const std::string& archive_name, std::size_t archive_bytes, const std::string& path)
      : name_(fmt::format("{}:{}", archive_name, path)) {
    const zip_int64_t index = zip_name_locate(archive, path.c_str(), 0);
    if (index < 0) {
      throw DataError(fmt::format("{} has no member {}; add the array: numpy.savez(file, ..., {}=...)", archive_name,
                                  path, path.substr(0, path.rfind('.'))));
    }
    zip_stat_t status;
    zip_stat_init(&status);
    const bool known = zip_stat_index(archive, static_cast<zip_uint64_t>(index), 0, &status) == 0 &&
                       (status.valid & ZIP_STAT_SIZE) != 0 && (status.valid & ZIP_STAT_COMP_SIZE) != 0;
    if (!known) throw DataError(fmt::format("{} has no size in the archive's directory; fetch the file again", name_));
    if (status.comp_size > archive_bytes || status.size / max_deflate_ratio > status.comp_size) {
      throw DataError(
          fmt::format("{} declares {} bytes in {} compressed bytes, more than they can hold in a file of {} bytes; "
                      "fetch the file again",
                      name_, status.size, status.comp_size, archive_bytes));
    }
    size_ = static_cast<std::size_t>(status.size);
    file_.reset(zip_fopen_index(archive, static_cast<zip_uint64_t>(index), 0));
    if (file_ == nullptr) {
      throw DataError(
          fmt::format("{} cannot be decompressed ({}); write it again with numpy.savez", name_, zip_strerror(archive)));
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Reads up to out.size() bytes. Returns fewer only at the member's end, after libzip has verified its checksum.
  [[nodiscard]] std::size_t read(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const zip_int64_t count = zip_fread(file_.get(), out.data() + done, out.size() - done);
      if (count < 0) {
        zip_error_t* const error = zip_file_get_error(file_.get());
        // The checksum is compared at the end, wherever the damage is.
        const std::string where =
            zip_error_code_zip(error) == ZIP_ER_CRC ? "" : fmt::format(" near its byte {}", offset_);
        throw DataError(
            fmt::format("{} is damaged{} ({}); fetch the file again", name_, where, zip_error_strerror(error)));
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

NpyHeader read_header(Member& member) {
  std::vector<std::uint8_t> start(npy_preamble_bytes);
  start.resize(member.read(start));
  const std::size_t wanted = npy_header_bytes(start, member.name());
  start.resize(wanted);
  start.resize(npy_preamble_bytes + member.read(std::span(start).subspan(npy_preamble_bytes)));
  return parse_npy_header(start, member.name());
}

}  // namespace

void NpzArchive::Discard::operator()(zip* archive) const noexcept { zip_discard(archive); }

NpzArchive::NpzArchive(std::span<const std::byte> file, std::string name)
    : name_(std::move(name)), bytes_(file.size()) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(file.data(), file.size(), 0, &error);
  if (source != nullptr) archive_.reset(zip_open_from_source(source, ZIP_RDONLY, &error));
  zip_error_fini(&error);
  if (file.empty()) throw DataError(name_ + " is empty; fetch or write it again");
  if (archive_ == nullptr) {
    if (source != nullptr) zip_source_free(source);  // an archive owns its source only once it is open
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    if (text.starts_with("PK\3\4")) {
      throw DataError(
          fmt::format("{} is cut short: it begins as an archive, but has no end after {} bytes; fetch or "
                      "write it again",
                      name_, file.size()));
    }
    throw DataError(
        fmt::format("{} ({} bytes) is not a zip archive, as numpy.savez writes; give such a file, or fetch it again",
                    name_, file.size()));
  }
  // Python reads the last of several members of one name, libzip the first. For NumPy "x" and "x.npy" are one name.
  std::set<std::string_view> names;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive_.get(), 0); ++i) {
    const char* const member = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), 0);
    if (member == nullptr) continue;
    std::string_view name = member;
    if (name.ends_with(".npy")) name.remove_suffix(4);
    if (!names.insert(name).second)
      throw DataError(fmt::format("{} has two members {}; write it again with numpy.savez", name_, member));
  }
}

bool NpzArchive::has(const std::string& key) const {
  return zip_name_locate(archive_.get(), (key + ".npy").c_str(), 0) >= 0;
}

std::optional<std::int64_t> NpzArchive::length_of(const std::string& key) const {
  try {
    Member member(archive_.get(), name_, bytes_, key + ".npy");
    const NpyHeader header = read_header(member);
    if (header.shape.rank() == 0) return std::nullopt;
    return header.shape[0];
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::vector<std::string> NpzArchive::keys() const {
  constexpr std::string_view extension = ".npy";
  std::vector<std::string> keys;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive_.get(), 0); ++i) {
    const char* const member = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), 0);
    const std::string_view name = member == nullptr ? std::string_view() : member;
    if (name.ends_with(extension)) keys.emplace_back(name.substr(0, name.size() - extension.size()));
  }
  return keys;
}

NpyArray NpzArchive::read(const std::string& key) const {
  Member member(archive_.get(), name_, bytes_, key + ".npy");
  const NpyHeader header = read_header(member);

  if (member.size() < header.bytes || member.size() - header.bytes != header.payload) {
    throw DataError(fmt::format(
        "{} declares an array {} of '{}', {} bytes from byte {} on, but has {} bytes in all; "
        "write it again with numpy.savez",
        member.name(), header.shape.to_string(), descr_of(header.type), header.payload, header.bytes, member.size()));
  }
  std::vector<std::uint8_t> bytes(header.payload);
  const std::size_t found = member.read(bytes);
  std::uint8_t one_more = 0;  // reading past the payload also verifies the member's checksum
  if (found != header.payload || member.read(std::span(&one_more, 1)) != 0) {
    throw DataError(fmt::format("{} does not decompress to the {} bytes it declares; fetch the file again",
                                member.name(), member.size()));
  }
  return to_array(header, std::move(bytes));
}

}  // namespace lockstep
