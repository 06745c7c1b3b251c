// The parts of load_keras_h5() and save_keras_h5() that both know.
#pragma once

#include "checkpoint/saved_model.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

class Hdf5Reader;

/// As load_keras_h5(), but in this process: a damaged file can crash the HDF5 library, and the process with it.
[[nodiscard]] SavedModel read_keras_h5(const std::filesystem::path& file);

/// The weights that the group `root` lists layer by layer, as whole models do in "model_weights", and Keras 2's files
/// of weights alone in "/".
[[nodiscard]] std::vector<SavedTensor> read_listed_weights(const Hdf5Reader& reader, const std::string& root,
                                                           const Sequential& architecture);

/// The digest that the root of our files has; `training_config` is empty where there is none.
[[nodiscard]] std::uint64_t digest_of_configs(const std::string& model_config, const std::string& training_config);

/// Where backups keep what only Lockstep reads; Keras passes over it.
constexpr const char* state_group = "lockstep";

/// The digest that this group has; the arrays in it have their own.
[[nodiscard]] std::uint64_t digest_of_state(const SavedState& state);

}  // namespace lockstep
