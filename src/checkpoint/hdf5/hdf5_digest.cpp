// See hdf5_digest.hpp. Visits all links in the order of names, so that the digest depends on the file's content and not
// on its layout, which differs between versions of HDF5.
#include "checkpoint/hdf5/hdf5_digest.hpp"

#include "core/digest.hpp"

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

/// Larger attributes are damaged: HDF5 stores at most 64 KiB with an object, and Lockstep's attributes fit in that.
constexpr std::size_t max_attribute_bytes = std::size_t{1} << 20U;

/// Return values of callbacks, which must not throw through HDF5.
constexpr herr_t continue_iteration = 0;
constexpr herr_t stop_iteration = 1;
constexpr herr_t iteration_failed = -1;

class StructureDigest {
 public:
  /// Adds the object at `path` and all its attributes. Returns false if HDF5 fails.
  [[nodiscard]] bool add_object(hid_t location, const char* path) {
    const Hdf5Handle object(H5Oopen(location, path, H5P_DEFAULT), H5Oclose);
    if (!object.valid()) return false;
    const H5I_type_t type = H5Iget_type(object.get());
    add(path);
    add(static_cast<std::uint64_t>(type));
    if (type == H5I_DATASET && !add_shape(object)) return false;
    const auto next = [](hid_t owner, const char* name, const H5A_info_t*, void* self) -> herr_t {
      return static_cast<StructureDigest*>(self)->add_attribute(owner, name) ? continue_iteration : iteration_failed;
    };
    return H5Aiterate2(object.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, next, this) >= 0;
  }

  void add(std::string_view text) {
    add(text.size());
    digest_.add(text.data(), text.size());
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return digest_.value(); }

 private:
  void add(std::uint64_t number) { digest_.add(&number, sizeof number); }

  [[nodiscard]] bool add_shape(const Hdf5Handle& dataset) {
    const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
    const int rank = space.valid() ? H5Sget_simple_extent_ndims(space.get()) : -1;
    if (rank < 0) return false;
    std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
    if (H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) != rank) return false;
    add(extents.size());
    for (const hsize_t extent : extents) add(std::uint64_t{extent});
    return true;
  }

  [[nodiscard]] bool add_attribute(hid_t object, const char* name) {
    if (std::strcmp(name, structure_digest_attribute) == 0) return true;
    const Hdf5Handle attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
    if (!attribute.valid()) return false;
    const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
    const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
    if (!space.valid() || !type.valid()) return false;
    const hssize_t count = H5Sget_simple_extent_npoints(space.get());
    const bool texts = H5Tis_variable_str(type.get()) > 0;
    const std::size_t size = texts ? sizeof(char*) : H5Tget_size(type.get());
    if (count < 0 || size == 0 || static_cast<std::uint64_t>(count) > max_attribute_bytes / size) return false;
    add(name);
    add(static_cast<std::uint64_t>(count));
    if (count == 0) return true;
    return texts ? add_texts(attribute, type, space, static_cast<std::size_t>(count))
                 : add_bytes(attribute, type, static_cast<std::size_t>(count) * size);
  }

  [[nodiscard]] bool add_texts(const Hdf5Handle& attribute, const Hdf5Handle& type, const Hdf5Handle& space,
                               std::size_t count) {
    std::vector<char*> texts(count, nullptr);
    if (H5Aread(attribute.get(), type.get(), texts.data()) < 0) return false;
    for (const char* text : texts) add(text != nullptr ? std::string_view(text) : std::string_view());
    return H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, texts.data()) >= 0;
  }

  [[nodiscard]] bool add_bytes(const Hdf5Handle& attribute, const Hdf5Handle& type, std::size_t size) {
    if (H5Tdetect_class(type.get(), H5T_VLEN) != 0) return false;  // the bytes would be pointers
    std::vector<char> bytes(size);
    if (H5Aread(attribute.get(), type.get(), bytes.data()) < 0) return false;
    add(std::string_view(bytes.data(), bytes.size()));
    return true;
  }

  Digest digest_;
};

}  // namespace

std::optional<std::uint64_t> compute_structure_digest(const Hdf5Handle& file) {
  StructureDigest digest;
  const auto next = [](hid_t root, const char* path, const H5L_info_t* link, void* data) -> herr_t {
    auto& filled = *static_cast<StructureDigest*>(data);
    if (link->type == H5L_TYPE_HARD) return filled.add_object(root, path) ? continue_iteration : iteration_failed;
    filled.add(path);  // Lockstep neither writes nor follows soft and external links
    return continue_iteration;
  };
  if (!digest.add_object(file.get(), "/") || H5Lvisit(file.get(), H5_INDEX_NAME, H5_ITER_INC, next, &digest) < 0) {
    return std::nullopt;
  }
  return digest.value();
}

std::optional<bool> has_digests(const Hdf5Handle& file) {
  const auto next = [](hid_t root, const char* path, const H5L_info_t* link, void*) -> herr_t {
    if (link->type != H5L_TYPE_HARD) return continue_iteration;
    const htri_t found = H5Aexists_by_name(root, path, digest_attribute, H5P_DEFAULT);
    if (found < 0) return iteration_failed;
    return found > 0 ? stop_iteration : continue_iteration;
  };
  const htri_t root = H5Aexists(file.get(), digest_attribute);
  const herr_t others = root != 0 ? root : H5Lvisit(file.get(), H5_INDEX_NAME, H5_ITER_INC, next, nullptr);
  if (others < 0) return std::nullopt;
  return others > 0;
}

}  // namespace lockstep
