// See zip_file.hpp. Checks declared sizes before it allocates memory.
#include "checkpoint/keras/zip_file.hpp"

#include "core/deflate.hpp"
#include "core/regular_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct CloseMember {
  void operator()(zip_file_t* file) const noexcept { zip_fclose(file); }
};

[[noreturn]] void fail_to_make(const std::string& what) {
  throw InternalError(fmt::format("libzip cannot {}; please report this", what));
}

std::string text_of(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

void add(zip_t* archive, const ZipMember& member) {
  const auto fail = [&] { fail_to_make("add " + member.name + " (" + zip_strerror(archive) + ")"); };
  zip_source_t* source = zip_source_buffer(archive, member.bytes.data(), member.bytes.size(), 0);
  if (source == nullptr) fail();
  const zip_int64_t index = zip_file_add(archive, member.name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);  // the archive owns the source only after success
    fail();
  }
  constexpr zip_uint16_t first_date = (1U << 5U) | 1U;  // 1980-01-01 in DOS format, independent of the time zone
  const auto added = static_cast<zip_uint64_t>(index);
  if (zip_set_file_compression(archive, added, ZIP_CM_STORE, 0) != 0) fail();
  if (zip_file_set_dostime(archive, added, 0, first_date, 0) != 0) fail();
}

/// Where libzip writes an archive. Collects its small writes.
class Output {
 public:
  explicit Output(const WriteAt& write) : write_(write) {}

  /// libzip's zip_source_callback. No exception may pass through libzip, so rethrow() throws it later.
  static zip_int64_t call(void* self, void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    auto& output = *static_cast<Output*>(self);
    try {
      return output.run(data, bytes, command);
    } catch (...) {
      output.exception_ = std::current_exception();
      zip_error_set(&output.error_, ZIP_ER_WRITE, 0);
      return -1;
    }
  }

  /// Throws what the function that writes has thrown, if anything.
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  zip_int64_t run(void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_SUPPORTS: return ZIP_SOURCE_SUPPORTS_WRITABLE;
      case ZIP_SOURCE_STAT: {
        auto* const status = static_cast<zip_stat_t*>(data);
        zip_stat_init(status);
        status->size = 0;  // before the archive is written
        status->valid = ZIP_STAT_SIZE;
        return sizeof *status;
      }
      case ZIP_SOURCE_WRITE:
        append({static_cast<const std::byte*>(data), bytes});
        return static_cast<zip_int64_t>(bytes);
      case ZIP_SOURCE_TELL_WRITE: return static_cast<zip_int64_t>(begin_ + collected_.size());
      case ZIP_SOURCE_SEEK_WRITE: {
        const zip_int64_t offset =
            zip_source_seek_compute_offset(begin_ + collected_.size(), size_, data, bytes, &error_);
        if (offset < 0) return -1;
        flush();
        begin_ = static_cast<std::size_t>(offset);
        return 0;
      }
      case ZIP_SOURCE_COMMIT_WRITE: flush(); return 0;
      case ZIP_SOURCE_ERROR: return zip_error_to_data(&error_, data, bytes);
      case ZIP_SOURCE_READ:
      case ZIP_SOURCE_SEEK:
      case ZIP_SOURCE_TELL: zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0); return -1;
      default: return 0;  // nothing to do to begin, to close or to free
    }
  }

  void append(std::span<const std::byte> bytes) {
    constexpr std::size_t max_collected = std::size_t{1} << 20U;
    collected_.insert(collected_.end(), bytes.begin(), bytes.end());
    size_ = std::max(size_, begin_ + collected_.size());
    if (collected_.size() >= max_collected) flush();
  }

  void flush() {
    if (!collected_.empty()) write_(begin_, collected_);
    begin_ += collected_.size();
    collected_.clear();
  }

  const WriteAt& write_;
  std::vector<std::byte> collected_;
  std::size_t begin_ = 0;  ///< where `collected_` belongs
  std::size_t size_ = 0;
  zip_error_t error_{};
  std::exception_ptr exception_;
};

}  // namespace

void write_zip(std::span<const ZipMember> members, const WriteAt& write) {
  Output output(write);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const target = zip_source_function_create(&Output::call, &output, &error);
  if (target == nullptr) fail_to_make("begin an archive");
  zip_t* const archive = zip_open_from_source(target, ZIP_TRUNCATE, &error);  // owns the target after success
  if (archive == nullptr) {
    zip_source_free(target);
    fail_to_make("begin an archive");
  }
  try {
    for (const ZipMember& member : members) add(archive, member);
  } catch (...) {
    zip_discard(archive);
    throw;
  }
  if (zip_close(archive) != 0) {
    const std::string problem = zip_strerror(archive);
    zip_discard(archive);
    output.rethrow();
    fail_to_make("finish an archive (" + problem + ")");
  }
}

std::vector<std::byte> make_zip(std::span<const ZipMember> members) {
  std::vector<std::byte> archive;
  write_zip(members, [&archive](std::size_t offset, std::span<const std::byte> bytes) {
    archive.resize(std::max(archive.size(), offset + bytes.size()));
    std::ranges::copy(bytes, archive.begin() + static_cast<std::ptrdiff_t>(offset));
  });
  return archive;
}

void ZipReader::Discard::operator()(zip* archive) const noexcept { zip_discard(archive); }

ZipReader::ZipReader(std::filesystem::path file) : name_(std::move(file)) {
  require_regular_file(name_, ".keras file");
  // libzip reports "No such file" for some damaged files, so this checks first.
  errno = 0;
  if (!std::ifstream(name_, std::ios::binary)) {
    throw IoError(fmt::format("cannot read {}: {}; check the path and its permissions", name_.string(),
                              std::generic_category().message(errno)));
  }
  int code = ZIP_ER_OK;
  archive_.reset(zip_open(name_.c_str(), ZIP_RDONLY, &code));
  if (archive_ != nullptr) {
    require_unique_members();
    return;
  }
  std::string head(4, ' ');
  if (std::ifstream(name_, std::ios::binary).read(head.data(), std::ssize(head)) && head == "\x89HDF")
    fail("is an HDF5 file; rename it, so that its name ends with .h5");
  fail(fmt::format("is not a zip archive, damaged or cut short ({}); save the model again as .keras", text_of(code)));
}

void ZipReader::require_unique_members() const {
  std::set<std::string_view> names;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive_.get(), 0); ++i) {
    const char* const member = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), 0);
    if (member != nullptr && !names.insert(member).second) {
      fail(
          fmt::format("has two members {}, and Python reads the last of them; save the model again as .keras", member));
    }
  }
}

void ZipReader::fail(const std::string& problem) const {
  throw DataError(fmt::format("{} {}", name_.string(), problem));
}

bool ZipReader::has(const std::string& member) const { return zip_name_locate(archive_.get(), member.c_str(), 0) >= 0; }

std::vector<std::byte> ZipReader::read(const std::string& member, std::size_t max_bytes) const {
  const zip_int64_t index = zip_name_locate(archive_.get(), member.c_str(), 0);
  if (index < 0)
    fail(fmt::format("has no {}, so it is no model file of Keras 3; write one with model.save(\"model.keras\")",
                     member));
  const auto located = static_cast<zip_uint64_t>(index);
  const auto fail_damaged = [&](const std::string& how) {
    fail("is damaged: its " + member + " " + how + "; use an earlier copy");
  };
  zip_stat_t status;
  zip_stat_init(&status);
  constexpr zip_uint64_t sizes = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
  if (zip_stat_index(archive_.get(), located, 0, &status) != 0 || (status.valid & sizes) != sizes) {
    fail_damaged("has no size");
  }
  std::error_code error;
  const std::uintmax_t packed = std::min<std::uintmax_t>(status.comp_size, std::filesystem::file_size(name_, error));
  if (error || status.size > max_bytes || status.size / max_deflate_ratio > packed) {
    fail_damaged(fmt::format("claims {} bytes, more than its compressed data can hold", status.size));
  }
  const std::unique_ptr<zip_file_t, CloseMember> opened(zip_fopen_index(archive_.get(), located, 0));
  if (opened == nullptr) fail_damaged(fmt::format("cannot be decompressed ({})", zip_strerror(archive_.get())));
  // One byte more than the size: libzip verifies the checksum only when a read reaches past the end.
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.size) + 1);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const zip_int64_t got = zip_fread(opened.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0) fail_damaged(fmt::format("cannot be decompressed ({})", zip_file_strerror(opened.get())));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  if (done != status.size) fail_damaged("does not have the size it claims");
  bytes.resize(done);
  return bytes;
}

}  // namespace lockstep
