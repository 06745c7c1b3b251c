// The seal of an HDF5 file: one digest of all that it holds, but for the values of its arrays, which have digests of
// their own. HDF5's older format, which every reader knows, has no check sums, so that one changed bit can give an
// array the place of another or hide a name; a reader that goes by names then takes wrong values for right ones.
#pragma once

#include "checkpoint/hdf5_handle.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// The attribute of the root that holds the seal as one integer of 64 bits. Keras passes over it.
constexpr const char* seal_attribute = "lockstep_seal";

/// The attribute that holds an object's digest (see core/digest.hpp) as one integer of 64 bits: of a data set's values,
/// or of texts that are attributes. Keras passes over it.
constexpr const char* digest_attribute = "lockstep_digest";

/// Over the paths of all objects, the shapes of data sets, and all attributes but the seal. Nothing if HDF5 fails,
/// which for a file of ours means that it is damaged.
[[nodiscard]] std::optional<std::uint64_t> compute_seal(const Hdf5Handle& file);

/// Whether any object has a digest, as only objects of ours do. Nothing if HDF5 fails.
[[nodiscard]] std::optional<bool> has_digests(const Hdf5Handle& file);

}  // namespace lockstep
