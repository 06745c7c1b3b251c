// The structure digest of an HDF5 file covers everything except the values of arrays, which have their own digests.
// HDF5's older format, which every reader supports, has no checksums: a flipped bit can swap two arrays or hide a name,
// and a reader that looks arrays up by name would read wrong values.
#pragma once

#include "checkpoint/hdf5/hdf5_handle.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// The root's attribute that holds the structure digest as a 64-bit integer. Keras ignores it.
constexpr const char* structure_digest_attribute = "lockstep_structure_digest";

/// The attribute that holds the digest of a dataset's values, or of an object's text attributes, as a 64-bit integer
/// (see core/digest.hpp). Keras ignores it.
constexpr const char* digest_attribute = "lockstep_digest";

/// Digests the paths of all objects, the shapes of datasets, and all attributes except the structure digest. Returns
/// nullopt if HDF5 fails, which means that a file of Lockstep is damaged.
[[nodiscard]] std::optional<std::uint64_t> compute_structure_digest(const Hdf5Handle& file);

/// True if any object has a digest, which only Lockstep writes. Returns nullopt if HDF5 fails.
[[nodiscard]] std::optional<bool> has_digests(const Hdf5Handle& file);

}  // namespace lockstep
