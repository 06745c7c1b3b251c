// Reads whole-model files in this process. Also defines the digests that load_keras_h5() and save_keras_h5() share.
#pragma once

#include "checkpoint/model_data.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

class Hdf5Reader;

/// Like load_keras_h5(), but in this process, which crashes if HDF5 crashes on a damaged file.
[[nodiscard]] ModelData read_keras_h5(const std::filesystem::path& file);

/// Reads the weights that the group `root` lists layer by layer: "model_weights" in whole models, "/" in Keras 2's
/// weights-only files.
[[nodiscard]] std::vector<NamedTensor> read_listed_weights(const Hdf5Reader& reader, const std::string& root,
                                                           const Architecture& architecture);

/// The order in which a whole-model file lists a layer's weights, as indices in LayerInfo::parameters: trainable ones
/// first, which reorders those of a nested model.
[[nodiscard]] std::vector<std::size_t> listed_order(const LayerInfo& layer);

/// The digest that Lockstep stores with a file's root: of model_config and training_config, which is empty for models
/// that are not compiled; in an archive of config.json and metadata.json.
[[nodiscard]] std::uint64_t config_digest(const std::string& config, const std::string& other);

/// The group of a backup's training state, which Keras ignores.
constexpr const char* training_state_group = "lockstep";

/// The digest of this group without its arrays, which have their own digests.
[[nodiscard]] std::uint64_t training_state_digest(const SerializedTrainingState& state);

}  // namespace lockstep
