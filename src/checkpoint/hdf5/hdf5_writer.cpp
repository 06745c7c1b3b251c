// See hdf5_writer.hpp. HDF5's core driver without a backing store keeps the file in memory.
#include "checkpoint/hdf5/hdf5_writer.hpp"

#include "checkpoint/hdf5/hdf5_digest.hpp"
#include "core/digest.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// The file in memory grows by at least this many bytes.
constexpr std::size_t min_growth = std::size_t{2} << 20U;

/// Each variable-length text takes 16 bytes of its attribute. HDF5 allows 64 KiB per attribute, Keras 64,512 bytes.
constexpr std::size_t max_strings = 64512 / 16;

[[noreturn]] void fail(const std::string& what) {
  throw InternalError(
      fmt::format("HDF5 cannot create {} in memory: {}; please report this", what, describe_hdf5_error()));
}

Hdf5Handle checked(std::int64_t id, Hdf5Handle::Closer close, const std::string& what) {
  Hdf5Handle handle(id, close);
  if (!handle.valid()) fail(what);
  return handle;
}

void check(herr_t status, const std::string& what) {
  if (status < 0) fail(what);
}

/// A property list that creates an object's missing parent groups.
Hdf5Handle create_missing_groups(const std::string& path) {
  Hdf5Handle list = checked(H5Pcreate(H5P_LINK_CREATE), H5Pclose, path);
  check(H5Pset_create_intermediate_group(list.get(), 1), path);
  return list;
}

Hdf5Handle text_type(const std::string& what) {
  Hdf5Handle type = checked(H5Tcopy(H5T_C_S1), H5Tclose, what);
  check(H5Tset_size(type.get(), H5T_VARIABLE), what);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), what);
  return type;
}

}  // namespace

Hdf5Writer::Hdf5Writer(std::size_t expected) {
  const std::string what = "a file";
  const Hdf5Handle access = checked(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, what);
  check(H5Pset_fapl_core(access.get(), std::max(min_growth, expected), false), what);
  if (!memory_.install(access.get())) fail(what);
  // Without a backing store the name is never used.
  file_ = checked(H5Fcreate("lockstep", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose, what);
}

void Hdf5Writer::create_group(const std::string& path) {
  const Hdf5Handle links = create_missing_groups(path);
  checked(H5Gcreate2(file_.get(), path.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT), H5Gclose, path);
}

void Hdf5Writer::set_attribute(const std::string& object, const std::string& name, const std::string& text) {
  set_texts(object, name, {&text, 1}, true);
}

void Hdf5Writer::set_attribute(const std::string& object, const std::string& name,
                               const std::vector<std::string>& texts) {
  if (texts.size() <= max_strings) {
    set_texts(object, name, texts, false);
    return;
  }
  for (std::size_t begin = 0; begin < texts.size(); begin += max_strings) {
    const std::size_t count = std::min(max_strings, texts.size() - begin);
    set_texts(object, fmt::format("{}{}", name, begin / max_strings), std::span(texts).subspan(begin, count), false);
  }
}

void Hdf5Writer::set_texts(const std::string& object, const std::string& name, std::span<const std::string> texts,
                           bool scalar) {
  const std::string what = fmt::format("the attribute {} of {}", name, object);
  const hsize_t count = texts.size();
  const Hdf5Handle space =
      checked(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), H5Sclose, what);
  const Hdf5Handle type = texts.empty() ? checked(H5Tcopy(H5T_IEEE_F64LE), H5Tclose, what) : text_type(what);
  const Hdf5Handle attribute = checked(H5Acreate_by_name(file_.get(), object.c_str(), name.c_str(), type.get(),
                                                         space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                                       H5Aclose, what);
  if (texts.empty()) return;
  std::vector<const char*> pointers;
  pointers.reserve(texts.size());
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  check(H5Awrite(attribute.get(), type.get(), pointers.data()), what);
}

void Hdf5Writer::set_digest(const std::string& object, std::uint64_t digest) {
  set_number(object, digest_attribute, digest);
}

void Hdf5Writer::set_number(const std::string& object, const char* name, std::uint64_t number) {
  const std::string what = fmt::format("the attribute {} of {}", name, object);
  const Hdf5Handle space = checked(H5Screate(H5S_SCALAR), H5Sclose, what);
  const Hdf5Handle attribute = checked(H5Acreate_by_name(file_.get(), object.c_str(), name, H5T_STD_U64LE, space.get(),
                                                         H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                                       H5Aclose, what);
  check(H5Awrite(attribute.get(), H5T_NATIVE_UINT64, &number), what);
}

void Hdf5Writer::write_floats(const std::string& path, const Shape& shape, std::span<const float> values) {
  write(path, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, shape, values.data());
}

void Hdf5Writer::write_scalar(const std::string& path, float value) {
  write(path, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, Shape{}, &value);
}

void Hdf5Writer::write_scalar(const std::string& path, std::int64_t value) {
  write(path, H5T_STD_I64LE, H5T_NATIVE_INT64, Shape{}, &value);
}

void Hdf5Writer::write(const std::string& path, std::int64_t file_type, std::int64_t memory_type, const Shape& shape,
                       const void* values) {
  const std::vector<hsize_t> extents(shape.extents().begin(), shape.extents().end());
  const Hdf5Handle space =
      checked(extents.empty() ? H5Screate(H5S_SCALAR)
                              : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
              H5Sclose, path);
  const Hdf5Handle options = checked(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, path);
  check(H5Pset_obj_track_times(options.get(), false), path);  // time stamps would make equal models differ
  const Hdf5Handle links = create_missing_groups(path);
  const Hdf5Handle dataset =
      checked(H5Dcreate2(file_.get(), path.c_str(), file_type, space.get(), links.get(), options.get(), H5P_DEFAULT),
              H5Dclose, path);
  check(H5Dwrite(dataset.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), path);
  Digest digest;
  digest.add(values, static_cast<std::size_t>(shape.elements()) * H5Tget_size(memory_type));
  set_digest(path, digest.value());
}

std::span<const std::byte> Hdf5Writer::finish() {
  const std::string what = "a file";
  const std::optional<std::uint64_t> digest = compute_structure_digest(file_);
  if (!digest) fail(what);
  set_number("/", structure_digest_attribute, *digest);
  check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), what);
  const ssize_t size = H5Fget_file_image(file_.get(), nullptr, 0);
  if (size <= 0 || static_cast<std::size_t>(size) > memory_.capacity()) fail(what);
  return {memory_.data(), static_cast<std::size_t>(size)};
}

}  // namespace lockstep
