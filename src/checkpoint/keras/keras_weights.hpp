// Keras 3's weights-only files, `model.save_weights("model.weights.h5")`. A `.keras` archive contains one. They do not
// describe the architecture; the reader supplies it.
//
//   /vars                          empty
//   /layers/<class>[_k]/vars/0,1   a dataset per weight; layers are numbered within their class, names are ignored
//   /layers/functional/layers/<class>[_k]/vars/0   weights of a nested model's layers
//   /optimizer/vars/0,1,2...       iteration, learning rate (unless it follows a schedule), slots
#pragma once

#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/model_data.hpp"
#include "ownership/write_guard.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace lockstep {

class Hdf5Reader;
class Hdf5Writer;

/// Writes the file atomically. Throws UsageError unless its name ends in .weights.h5, which Keras requires.
void save_keras_weights(const std::filesystem::path& file, const ModelData& model,
                        const WriteGuard& guard = require_not_owned_by_another);

/// Replaces the values of `model`: its weights and, if it is compiled, iteration, learning rate and slots; a file
/// without these resets them. Throws IoError if the file cannot be read; DataError if it is damaged or does not fit the
/// architecture or optimizer.
[[nodiscard]] ModelData load_keras_weights(const std::filesystem::path& file, ModelData model);

/// Builds the file in the memory of `writer`, and returns its bytes, which are valid while the writer lives.
/// `archive_digest` is stored with its root: that of the archive's other members.
[[nodiscard]] std::span<const std::byte> write_keras_weights(Hdf5Writer& writer, const ModelData& model,
                                                             std::optional<std::uint64_t> archive_digest = {});

/// Like load_keras_weights(), but from an open file in this process. Keras 2 stores no learning rate among an
/// optimizer's variables.
[[nodiscard]] ModelData read_keras_weights(const Hdf5Reader& reader, ModelData model, KerasVersion version);

}  // namespace lockstep
