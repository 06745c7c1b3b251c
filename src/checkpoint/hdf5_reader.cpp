// HDF5 in, with distrust.
#include "checkpoint/hdf5_reader.hpp"

#include "checkpoint/hdf5_seal.hpp"
#include "core/digest.hpp"

#include <lockstep/core/error.hpp>

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

/// Deflate, the strongest filter h5py offers by default, saves at most a factor of 1032.
constexpr std::uint64_t max_compression = 1032;

/// A list of names longer than this is damage; Keras' deepest models have some thousand layers.
constexpr hsize_t max_texts = 1U << 20U;

constexpr int max_rank = 8;

/// Who edits a file of ours takes the checks with him.
constexpr const char* damage_remedy =
    "the file is damaged, so use an earlier copy (or, if it was changed on purpose, delete all its attributes "
    "lockstep_seal and lockstep_digest)";

/// IoError if the file cannot be read, DataError if it does not begin as HDF5 files do; else its size.
std::uint64_t check_signature(const std::filesystem::path& name) {
  std::error_code error;
  if (std::filesystem::is_directory(name, error)) {
    throw IoError("Cannot read " + name.string() + ": it is a directory; name a .h5 file.");
  }
  errno = 0;
  std::ifstream stream(name, std::ios::binary);
  if (!stream) {
    throw IoError("Cannot read " + name.string() + ": " + std::generic_category().message(errno) +
                  "; check the path and its permissions.");
  }
  constexpr std::string_view signature("\x89HDF\r\n\x1a\n", 8);
  std::array<char, 8> begin{};
  stream.read(begin.data(), begin.size());
  if (stream.gcount() != static_cast<std::streamsize>(begin.size()) || signature != std::string_view(begin.data(), 8)) {
    throw DataError(name.string() +
                    " is not an HDF5 file: its first 8 bytes are not those of one; save the model again"
                    " as .h5.");
  }
  stream.seekg(0, std::ios::end);
  return static_cast<std::uint64_t>(stream.tellg());
}

bool has_attribute(const Hdf5Handle& object, const std::string& attribute) {
  return H5Aexists(object.get(), attribute.c_str()) > 0;
}

}  // namespace

Hdf5Reader::Hdf5Reader(std::filesystem::path file)
    : name_(std::move(file)), size_(check_signature(name_)), file_(H5I_INVALID_HID, H5Fclose) {
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Our files are replaced whole, never changed in place, and network file systems often refuse locks. The user's
  // HDF5_USE_FILE_LOCKING=TRUE still wins, hence the hint below.
  if (!access.valid() || H5Pset_file_locking(access.get(), false, true) < 0)
    fail("cannot be opened: " + describe_hdf5_error());
  file_ = Hdf5Handle(H5Fopen(name_.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (file_.valid()) {
    check_seal();
    return;
  }
  const std::string reason = describe_hdf5_error();
  if (reason.find("lock file") != std::string::npos) {
    throw IoError("Cannot read " + name_.string() + ": " + reason + "; set HDF5_USE_FILE_LOCKING=FALSE.");
  }
  fail("the file is damaged or cut short (" + reason + "); use an earlier copy");
}

Hdf5Reader::Hdf5Reader(std::span<std::byte> image, std::filesystem::path name)
    : name_(std::move(name)), size_(image.size()), file_(H5I_INVALID_HID, H5Fclose) {
  constexpr std::size_t growth = std::size_t{1} << 20U;  // never used: nothing is written
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const bool ready = access.valid() && H5Pset_fapl_core(access.get(), growth, false) >= 0 &&
                     H5Pset_file_image(access.get(), image.data(), image.size()) >= 0;
  if (ready) file_ = Hdf5Handle(H5Fopen(name_.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file_.valid()) fail("is not HDF5, damaged or cut short (" + describe_hdf5_error() + ")");
  check_seal();
}

void Hdf5Reader::check_seal() const {
  if (const std::optional<std::uint64_t> expected = number("/", seal_attribute)) {
    if (compute_seal(file_) == expected) return;
    fail(std::string("its names, shapes or texts are not those that were saved; ") + damage_remedy);
  }
  const std::optional<bool> ours = has_digests(file_);
  if (!ours) fail("the file is damaged (" + describe_hdf5_error() + "); use an earlier copy");
  if (*ours) fail(std::string("has lost its seal; ") + damage_remedy);
}

void Hdf5Reader::fail(const std::string& problem) const { throw DataError(name_.string() + ": " + problem + "."); }

bool Hdf5Reader::has(const std::string& path) const {
  std::size_t end = 0;
  do {  // H5Lexists wants every group on the way to exist
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (H5Lexists(file_.get(), part.c_str(), H5P_DEFAULT) <= 0) return false;
    H5L_info_t info{};
    if (H5Lget_info(file_.get(), part.c_str(), &info, H5P_DEFAULT) < 0 || info.type != H5L_TYPE_HARD) return false;
  } while (end != std::string::npos);
  return true;
}

Hdf5Handle Hdf5Reader::open(const std::string& path) const {
  if (path != "/" && !has(path)) fail("has no '" + path + "' (links are not followed); save the model again");
  Hdf5Handle object(H5Oopen(file_.get(), path.c_str(), H5P_DEFAULT), H5Oclose);
  if (!object.valid()) fail("'" + path + "' is damaged (" + describe_hdf5_error() + ")");
  return object;
}

bool Hdf5Reader::is_group(const std::string& path) const { return H5Iget_type(open(path).get()) == H5I_GROUP; }

std::vector<std::string> Hdf5Reader::attribute_texts(const Hdf5Handle& object, const std::string& name) const {
  const auto damaged = [&](const std::string& problem) { fail("the attribute " + name + " " + problem); };
  const Hdf5Handle attribute(H5Aopen(object.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) damaged("is damaged (" + describe_hdf5_error() + ")");
  const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (!space.valid() || !type.valid()) damaged("is damaged (" + describe_hdf5_error() + ")");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count == 0) return {};
  if (count < 0 || static_cast<hsize_t>(count) > max_texts) damaged("is damaged (it claims too many entries)");
  if (H5Tget_class(type.get()) != H5T_STRING) damaged("is not text");
  std::vector<std::string> texts(static_cast<std::size_t>(count));

  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> pointers(texts.size(), nullptr);
    const bool read = H5Aread(attribute.get(), type.get(), pointers.data()) >= 0;
    const std::string reason = read ? "" : describe_hdf5_error();
    for (std::size_t i = 0; read && i < texts.size(); ++i) {
      if (pointers[i] != nullptr) texts[i] = pointers[i];
    }
    if (read) H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, pointers.data());
    if (!read) damaged("is damaged (" + reason + ")");
    return texts;
  }
  const std::size_t length = H5Tget_size(type.get());
  // Fixed texts lie in the file as they are, at most 64 KiB of them.
  if (length == 0 || length > size_ / texts.size()) damaged("is damaged (it claims more bytes than the file has)");
  std::vector<char> bytes(length * texts.size());
  if (H5Aread(attribute.get(), type.get(), bytes.data()) < 0) damaged("is damaged (" + describe_hdf5_error() + ")");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const char* const begin = bytes.data() + i * length;
    texts[i].assign(begin, std::find(begin, begin + length, '\0'));
  }
  return texts;
}

std::optional<std::string> Hdf5Reader::text(const std::string& object, const std::string& attribute) const {
  const Hdf5Handle opened = open(object);
  if (!has_attribute(opened, attribute)) return std::nullopt;
  std::vector<std::string> texts = attribute_texts(opened, attribute);
  if (texts.size() != 1) fail("the attribute " + attribute + " of '" + object + "' is not one text");
  return std::move(texts.front());
}

bool Hdf5Reader::has_texts(const std::string& object, const std::string& attribute) const {
  const Hdf5Handle opened = open(object);
  return has_attribute(opened, attribute) || has_attribute(opened, attribute + "0");
}

std::vector<std::string> Hdf5Reader::texts(const std::string& object, const std::string& attribute) const {
  const Hdf5Handle opened = open(object);
  if (has_attribute(opened, attribute)) return attribute_texts(opened, attribute);
  if (!has_attribute(opened, attribute + "0")) fail("'" + object + "' has no attribute " + attribute);
  std::vector<std::string> texts;
  for (int part = 0; has_attribute(opened, attribute + std::to_string(part)); ++part) {
    std::vector<std::string> more = attribute_texts(opened, attribute + std::to_string(part));
    texts.insert(texts.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
    if (texts.size() > max_texts) break;
  }
  if (texts.size() > max_texts) fail("the attribute " + attribute + " of '" + object + "' has too many entries");
  return texts;
}

Hdf5Handle Hdf5Reader::open_dataset(const std::string& path) const {
  Hdf5Handle object = open(path);
  if (H5Iget_type(object.get()) != H5I_DATASET) fail("'" + path + "' is not a data set");
  const Hdf5Handle options(H5Dget_create_plist(object.get()), H5Pclose);
  if (!options.valid()) fail("'" + path + "' is damaged (" + describe_hdf5_error() + ")");
  if (H5Pget_layout(options.get()) == H5D_VIRTUAL || H5Pget_external_count(options.get()) != 0) {
    fail("the values of '" + path + "' lie in another file, which is not followed; save the model into one file");
  }
  return object;
}

std::vector<std::string> Hdf5Reader::children(const std::string& group) const {
  const Hdf5Handle opened = open(group);
  H5G_info_t info{};
  if (H5Iget_type(opened.get()) != H5I_GROUP || H5Gget_info(opened.get(), &info) < 0) {
    fail("'" + group + "' is not a group");
  }
  if (info.nlinks > max_texts) fail("'" + group + "' is damaged (it claims too many entries)");
  std::vector<std::string> names;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    const auto name_of = [&](char* buffer, std::size_t size) {
      return H5Lget_name_by_idx(opened.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, buffer, size, H5P_DEFAULT);
    };
    const ssize_t length = name_of(nullptr, 0);
    if (length <= 0 || static_cast<std::uint64_t>(length) > size_) fail("'" + group + "' is damaged (a name is)");
    std::string name(static_cast<std::size_t>(length) + 1, '\0');
    if (name_of(name.data(), name.size()) != length) fail("'" + group + "' is damaged (a name is)");
    name.pop_back();
    std::string path = group == "/" ? "" : group + "/";
    path += name;
    if (has(path)) names.push_back(std::move(name));
  }
  return names;
}

std::optional<std::uint64_t> Hdf5Reader::digest(const std::string& object) const {
  return number(object, digest_attribute);
}

std::optional<std::uint64_t> Hdf5Reader::number(const std::string& object, const char* name) const {
  const Hdf5Handle opened = open(object);
  if (!has_attribute(opened, name)) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(opened.get(), name, H5P_DEFAULT), H5Aclose);
  const Hdf5Handle space(attribute.valid() ? H5Aget_space(attribute.get()) : H5I_INVALID_HID, H5Sclose);
  std::uint64_t value = 0;
  if (!space.valid() || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Aread(attribute.get(), H5T_NATIVE_UINT64, &value) < 0) {
    fail("the attribute " + std::string(name) + " of '" + object + "' is damaged");
  }
  return value;
}

void Hdf5Reader::check_digest(const std::string& path, const void* values, std::size_t bytes) const {
  const std::optional<std::uint64_t> expected = digest(path);
  if (!expected) return;
  Digest found;
  found.add(values, bytes);
  if (found.value() == *expected) return;
  fail("the values of '" + path + "' are not those that were saved; " + damage_remedy);
}

std::optional<Shape> Hdf5Reader::shape_of(const std::string& path) const {
  const Hdf5Handle object = open(path);
  if (H5Iget_type(object.get()) != H5I_DATASET) return std::nullopt;
  const auto damaged = [&](const std::string& problem) { fail("'" + path + "' is damaged (" + problem + ")"); };
  const Hdf5Handle space(H5Dget_space(object.get()), H5Sclose);
  const Hdf5Handle type(H5Dget_type(object.get()), H5Tclose);
  if (!space.valid() || !type.valid()) damaged(describe_hdf5_error());
  if (H5Tget_class(type.get()) != H5T_FLOAT) return std::nullopt;
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || rank > max_rank) damaged("its rank is " + std::to_string(rank));
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  if (H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) != rank) damaged(describe_hdf5_error());
  std::uint64_t elements = 1;
  for (const hsize_t extent : extents) {
    // More than any file can hold, and few enough that no product of ours overflows.
    constexpr std::uint64_t most = std::uint64_t{1} << 48U;
    if (extent > most || (extent != 0 && elements > most / extent)) damaged("its shape is larger than any file");
    elements *= extent;
  }
  return Shape(std::vector<std::int64_t>(extents.begin(), extents.end()));
}

std::vector<float> Hdf5Reader::floats(const std::string& path, const Shape& shape) const {
  const Hdf5Handle dataset = open_dataset(path);
  const auto damaged = [&](const std::string& problem) { fail("'" + path + "' is damaged (" + problem + ")"); };
  const std::optional<Shape> found = shape_of(path);
  if (!found) fail("'" + path + "' does not hold floating-point numbers");
  if (*found != shape) {
    fail("'" + path + "' has the shape " + found->to_string() + ", but the model needs " + shape.to_string());
  }
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  const Hdf5Handle options(H5Dget_create_plist(dataset.get()), H5Pclose);
  const std::size_t width = type.valid() ? H5Tget_size(type.get()) : 0;
  if (width == 0 || !options.valid()) damaged(describe_hdf5_error());
  // Plain data cannot outgrow the file, packed data not by more than packing can save.
  const std::uint64_t saving = H5Pget_nfilters(options.get()) > 0 ? max_compression : 1;
  const auto elements = static_cast<std::uint64_t>(shape.elements());
  if (elements > size_ / width * saving) damaged("it claims more values than the file can hold");

  std::vector<float> values(elements);
  if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    damaged(describe_hdf5_error());
  }
  check_digest(path, values.data(), values.size() * sizeof(float));
  return values;
}

std::int64_t Hdf5Reader::integer(const std::string& path) const {
  const Hdf5Handle dataset = open_dataset(path);
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  if (!space.valid() || !type.valid() || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Tget_class(type.get()) != H5T_INTEGER) {
    fail("'" + path + "' is not one integer");
  }
  std::int64_t value = 0;
  if (H5Dread(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) < 0) {
    fail("'" + path + "' is damaged (" + describe_hdf5_error() + ")");
  }
  check_digest(path, &value, sizeof value);
  return value;
}

}  // namespace lockstep
