// See hdf5_reader.hpp.
#include "checkpoint/hdf5/hdf5_reader.hpp"

#include "checkpoint/hdf5/hdf5_digest.hpp"
#include "core/digest.hpp"
#include "core/regular_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// The largest compression ratio of deflate, the strongest filter that h5py offers by default.
constexpr std::uint64_t max_compression = 1032;

/// Longer lists of names are damaged; Keras' deepest models have a few thousand layers.
constexpr hsize_t max_strings = 1U << 20U;

constexpr int max_rank = 8;

constexpr const char* damage_remedy =
    "the file is damaged, so use an earlier copy (or, if you changed it on purpose, delete all its attributes "
    "lockstep_structure_digest and lockstep_digest)";

/// Returns the file's size. Throws IoError if the file cannot be read, DataError if it lacks HDF5's signature.
std::uint64_t check_signature(const std::filesystem::path& name) {
  require_regular_file(name, ".h5 file");
  errno = 0;
  std::ifstream stream(name, std::ios::binary);
  if (!stream) {
    throw IoError(fmt::format("cannot read {}: {}; check the path and its permissions", name.string(),
                              std::generic_category().message(errno)));
  }
  constexpr std::string_view signature("\x89HDF\r\n\x1a\n", 8);
  std::array<char, 8> begin{};
  stream.read(begin.data(), begin.size());
  if (std::string_view(begin.data(), 4) == "PK\3\4") {
    throw DataError(fmt::format("{} is a zip archive, as .keras files are; rename it to a name that ends in .keras",
                                name.string()));
  }
  if (stream.gcount() != static_cast<std::streamsize>(begin.size()) || signature != std::string_view(begin.data(), 8)) {
    throw DataError(
        fmt::format("{} is not an HDF5 file: its first 8 bytes are not HDF5's signature; save the model "
                    "again as .h5",
                    name.string()));
  }
  stream.seekg(0, std::ios::end);
  return static_cast<std::uint64_t>(stream.tellg());
}

bool has_attribute(const Hdf5Handle& object, const std::string& attribute) {
  return H5Aexists(object.get(), attribute.c_str()) > 0;
}

}  // namespace

Hdf5Reader::Hdf5Reader(std::filesystem::path file) : name_(std::move(file)), size_(check_signature(name_)) {
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Files are replaced atomically, never changed in place, and network file systems often refuse locks. The user's
  // HDF5_USE_FILE_LOCKING=TRUE takes precedence, hence the hint below.
  if (!access.valid() || H5Pset_file_locking(access.get(), false, true) < 0)
    fail("cannot be opened: " + describe_hdf5_error());
  file_ = Hdf5Handle(H5Fopen(name_.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (file_.valid()) {
    check_structure_digest();
    return;
  }
  const std::string reason = describe_hdf5_error();
  if (reason.find("lock file") != std::string::npos) {
    throw IoError(fmt::format("cannot read {}: {}; set HDF5_USE_FILE_LOCKING=FALSE", name_.string(), reason));
  }
  fail(fmt::format("the file is damaged or cut short ({}); use an earlier copy", reason));
}

Hdf5Reader::Hdf5Reader(std::span<std::byte> image, std::filesystem::path name)
    : name_(std::move(name)), size_(image.size()) {
  constexpr std::size_t growth = std::size_t{1} << 20U;  // irrelevant, since nothing is written
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const bool ready = access.valid() && H5Pset_fapl_core(access.get(), growth, false) >= 0 &&
                     H5Pset_file_image(access.get(), image.data(), image.size()) >= 0;
  if (ready) file_ = Hdf5Handle(H5Fopen(name_.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file_.valid()) fail(fmt::format("is not HDF5, damaged or cut short ({})", describe_hdf5_error()));
  check_structure_digest();
}

void Hdf5Reader::check_structure_digest() const {
  if (const std::optional<std::uint64_t> expected = read_number("/", structure_digest_attribute)) {
    if (compute_structure_digest(file_) == expected) return;
    fail(fmt::format("its names, shapes or texts differ from those that were saved; {}", damage_remedy));
  }
  const std::optional<bool> is_lockstep_file = has_digests(file_);
  if (!is_lockstep_file) fail(fmt::format("the file is damaged ({}); use an earlier copy", describe_hdf5_error()));
  if (*is_lockstep_file) fail(fmt::format("has lost its structure digest; {}", damage_remedy));
}

bool Hdf5Reader::has_checksums() const { return read_number("/", structure_digest_attribute).has_value(); }

void Hdf5Reader::fail(const std::string& problem) const {
  if (const int error = error_suppressor_.read_errno(); error != 0) {
    throw IoError(fmt::format("cannot read {}: {}; check the disk and its mount", name_.string(),
                              std::generic_category().message(error)));
  }
  throw DataError(describe(problem));
}

std::string Hdf5Reader::describe(const std::string& problem) const {
  return fmt::format("{}: {}", name_.string(), problem);
}

void Hdf5Reader::fail_damaged(const std::string& path, const std::string& reason) const {
  fail(fmt::format("'{}' is damaged ({})", path, reason));
}

bool Hdf5Reader::has(const std::string& path) const {
  std::size_t end = 0;
  do {  // H5Lexists fails unless all parent groups exist
    end = path.find('/', end + 1);
    const std::string prefix = path.substr(0, end);
    if (H5Lexists(file_.get(), prefix.c_str(), H5P_DEFAULT) <= 0) return false;
    H5L_info_t info{};
    if (H5Lget_info(file_.get(), prefix.c_str(), &info, H5P_DEFAULT) < 0 || info.type != H5L_TYPE_HARD) return false;
  } while (end != std::string::npos);
  return true;
}

Hdf5Handle Hdf5Reader::open(const std::string& path) const {
  if (path != "/" && !has(path)) fail(fmt::format("has no '{}' (links are not followed); save the model again", path));
  Hdf5Handle object(H5Oopen(file_.get(), path.c_str(), H5P_DEFAULT), H5Oclose);
  if (!object.valid()) fail_damaged(path, describe_hdf5_error());
  return object;
}

bool Hdf5Reader::is_group(const std::string& path) const { return H5Iget_type(open(path).get()) == H5I_GROUP; }

std::vector<std::string> Hdf5Reader::read_string_attribute(const Hdf5Handle& object, const std::string& name) const {
  const auto damaged = [&](const std::string& reason) {
    fail(fmt::format("the attribute {} is damaged ({})", name, reason));
  };
  const Hdf5Handle attribute(H5Aopen(object.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) damaged(describe_hdf5_error());
  const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (!space.valid() || !type.valid()) damaged(describe_hdf5_error());
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count == 0) return {};
  if (count < 0 || static_cast<hsize_t>(count) > max_strings) damaged("it claims too many entries");
  if (H5Tget_class(type.get()) != H5T_STRING) fail(fmt::format("the attribute {} is not text", name));
  std::vector<std::string> texts(static_cast<std::size_t>(count));

  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> pointers(texts.size(), nullptr);
    const bool read = H5Aread(attribute.get(), type.get(), pointers.data()) >= 0;
    const std::string reason = read ? "" : describe_hdf5_error();
    for (std::size_t i = 0; read && i < texts.size(); ++i) {
      if (pointers[i] != nullptr) texts[i] = pointers[i];
    }
    if (read) H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, pointers.data());
    if (!read) damaged(reason);
    return texts;
  }
  const std::size_t length = H5Tget_size(type.get());
  // Texts of fixed length are stored uncompressed, so they cannot exceed the file's size.
  if (length == 0 || length > size_ / texts.size()) damaged("it claims more bytes than the file has");
  std::vector<char> bytes(length * texts.size());
  if (H5Aread(attribute.get(), type.get(), bytes.data()) < 0) damaged(describe_hdf5_error());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const char* const begin = bytes.data() + i * length;
    texts[i].assign(begin, std::find(begin, begin + length, '\0'));
  }
  return texts;
}

std::optional<std::string> Hdf5Reader::read_string(const std::string& object, const std::string& attribute) const {
  const Hdf5Handle opened = open(object);
  if (!has_attribute(opened, attribute)) return std::nullopt;
  std::vector<std::string> texts = read_string_attribute(opened, attribute);
  if (texts.size() != 1) fail(fmt::format("the attribute {} of '{}' is not one text", attribute, object));
  return std::move(texts.front());
}

bool Hdf5Reader::has_strings(const std::string& object, const std::string& attribute) const {
  const Hdf5Handle opened = open(object);
  return has_attribute(opened, attribute) || has_attribute(opened, attribute + "0");
}

std::vector<std::string> Hdf5Reader::read_strings(const std::string& object, const std::string& attribute) const {
  const Hdf5Handle opened = open(object);
  if (has_attribute(opened, attribute)) return read_string_attribute(opened, attribute);
  if (!has_attribute(opened, attribute + "0")) fail(fmt::format("'{}' has no attribute {}", object, attribute));
  std::vector<std::string> texts;
  for (int part = 0; texts.size() <= max_strings; ++part) {
    const std::string name = fmt::format("{}{}", attribute, part);
    if (!has_attribute(opened, name)) break;
    std::vector<std::string> more = read_string_attribute(opened, name);
    texts.insert(texts.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
  }
  if (texts.size() > max_strings) {
    fail(fmt::format("the attribute {} of '{}' has too many entries", attribute, object));
  }
  return texts;
}

Hdf5Handle Hdf5Reader::open_dataset(const std::string& path) const {
  Hdf5Handle object = open(path);
  if (H5Iget_type(object.get()) != H5I_DATASET) fail(fmt::format("'{}' is not a dataset", path));
  const Hdf5Handle options(H5Dget_create_plist(object.get()), H5Pclose);
  if (!options.valid()) fail_damaged(path, describe_hdf5_error());
  if (H5Pget_layout(options.get()) == H5D_VIRTUAL || H5Pget_external_count(options.get()) != 0) {
    fail(fmt::format("the values of '{}' are in another file, which is not read; save the model into one file", path));
  }
  return object;
}

std::vector<std::string> Hdf5Reader::child_names(const std::string& group) const {
  const Hdf5Handle opened = open(group);
  H5G_info_t info{};
  if (H5Iget_type(opened.get()) != H5I_GROUP || H5Gget_info(opened.get(), &info) < 0) {
    fail(fmt::format("'{}' is not a group", group));
  }
  if (info.nlinks > max_strings) fail_damaged(group, "it claims too many entries");
  std::vector<std::string> names;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    const auto read_name = [&](char* buffer, std::size_t size) {
      return H5Lget_name_by_idx(opened.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, buffer, size, H5P_DEFAULT);
    };
    const ssize_t length = read_name(nullptr, 0);
    if (length <= 0 || static_cast<std::uint64_t>(length) > size_) fail_damaged(group, "it has an unreadable name");
    std::string name(static_cast<std::size_t>(length) + 1, '\0');
    if (read_name(name.data(), name.size()) != length) fail_damaged(group, "it has an unreadable name");
    name.pop_back();
    std::string path = group == "/" ? "" : group + "/";
    path += name;
    if (has(path)) names.push_back(std::move(name));
  }
  return names;
}

std::optional<std::uint64_t> Hdf5Reader::read_digest(const std::string& object) const {
  return read_number(object, digest_attribute);
}

std::optional<std::uint64_t> Hdf5Reader::read_number(const std::string& object, const char* name) const {
  const Hdf5Handle opened = open(object);
  if (!has_attribute(opened, name)) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(opened.get(), name, H5P_DEFAULT), H5Aclose);
  const Hdf5Handle space(attribute.valid() ? H5Aget_space(attribute.get()) : H5I_INVALID_HID, H5Sclose);
  std::uint64_t value = 0;
  if (!space.valid() || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Aread(attribute.get(), H5T_NATIVE_UINT64, &value) < 0) {
    fail(fmt::format("the attribute {} of '{}' is damaged", name, object));
  }
  return value;
}

void Hdf5Reader::check_digest(const std::string& path, const void* values, std::size_t bytes) const {
  const std::optional<std::uint64_t> expected = read_digest(path);
  if (!expected) return;
  Digest found;
  found.add(values, bytes);
  if (found.value() == *expected) return;
  fail(fmt::format("the values of '{}' differ from those that were saved; {}", path, damage_remedy));
}

std::optional<Shape> Hdf5Reader::shape_of(const std::string& path) const { return shape_of(path, false); }

std::optional<Shape> Hdf5Reader::shape_of(const std::string& path, bool or_integers) const {
  const Hdf5Handle object = open(path);
  if (H5Iget_type(object.get()) != H5I_DATASET) return std::nullopt;
  const Hdf5Handle space(H5Dget_space(object.get()), H5Sclose);
  const Hdf5Handle type(H5Dget_type(object.get()), H5Tclose);
  if (!space.valid() || !type.valid()) fail_damaged(path, describe_hdf5_error());
  const H5T_class_t type_class = H5Tget_class(type.get());
  if (type_class != H5T_FLOAT && !(or_integers && type_class == H5T_INTEGER)) return std::nullopt;
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || rank > max_rank)
    fail_damaged(path, fmt::format("it has {} dimensions, of at most {}", rank, max_rank));
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  if (H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) != rank) {
    fail_damaged(path, describe_hdf5_error());
  }
  std::uint64_t elements = 1;
  for (const hsize_t extent : extents) {
    // More elements than any file holds, but byte counts do not overflow.
    constexpr std::uint64_t max_elements = std::uint64_t{1} << 48U;
    if (extent > max_elements || (extent != 0 && elements > max_elements / extent)) {
      fail_damaged(path, "its shape has more elements than a file can hold");
    }
    elements *= extent;
  }
  return Shape(std::vector<std::int64_t>(extents.begin(), extents.end()));
}

std::vector<float> Hdf5Reader::read_floats(const std::string& path, const Shape& shape) const {
  const Hdf5Handle dataset = open_dataset(path);
  const bool may_be_count = shape.rank() == 0;  // Normalization's weights include a whole number
  const std::optional<Shape> found = shape_of(path, may_be_count);
  if (!found) fail(fmt::format("'{}' does not hold floating-point numbers", path));
  if (*found != shape) {
    fail(fmt::format(
        "'{}' has the shape {}, but the model needs {}; the file is damaged, or its weights are another model's", path,
        found->to_string(), shape.to_string()));
  }
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  const Hdf5Handle options(H5Dget_create_plist(dataset.get()), H5Pclose);
  const std::size_t width = type.valid() ? H5Tget_size(type.get()) : 0;
  if (width == 0 || !options.valid()) fail_damaged(path, describe_hdf5_error());
  // Uncompressed data cannot exceed the file's size. Compressed data can, up to the largest compression ratio.
  const std::uint64_t ratio = H5Pget_nfilters(options.get()) > 0 ? max_compression : 1;
  const auto elements = static_cast<std::uint64_t>(shape.elements());
  if (elements > size_ / width * ratio) fail_damaged(path, "it claims more values than the file can hold");

  std::vector<float> values(elements);
  if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    fail_damaged(path, describe_hdf5_error());
  }
  check_digest(path, values.data(), values.size() * sizeof(float));
  return values;
}

std::int64_t Hdf5Reader::read_integer(const std::string& path) const {
  const Hdf5Handle dataset = open_dataset(path);
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  if (!space.valid() || !type.valid() || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Tget_class(type.get()) != H5T_INTEGER) {
    fail(fmt::format("'{}' is not one integer", path));
  }
  std::int64_t value = 0;
  if (H5Dread(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) < 0) {
    fail_damaged(path, describe_hdf5_error());
  }
  check_digest(path, &value, sizeof value);
  return value;
}

}  // namespace lockstep
