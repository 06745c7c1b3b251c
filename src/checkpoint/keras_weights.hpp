// Keras 3's weights-only files, `model.save_weights("model.weights.h5")`; `.keras` archives hold one too. They know no
// architecture: whoever loads one knows it already.
//
//   /vars                          empty
//   /layers/<class>[_k]/vars/0,1   a data set a weight; layers are counted class by class, their names do not matter
//   /optimizer/vars/0,1,2...       iteration, learning rate (unless it follows a schedule), slots
#pragma once

#include "checkpoint/saved_model.hpp"

#include <cstddef>
#include <filesystem>
#include <vector>

namespace lockstep {

class Hdf5Reader;

/// Writes the file whole or not at all (see AtomicFile). Its name must end in .weights.h5, or Keras does not read it.
void save_keras_weights(const std::filesystem::path& file, const SavedModel& model);

/// Weights for `model`'s architecture and, if it is compiled and the file has them, iteration, learning rate and slots;
/// where the file has none, training begins anew. Whatever values `model` had are replaced. Throws IoError where the
/// file cannot be read, DataError where it is damaged or of another architecture or optimizer.
[[nodiscard]] SavedModel load_keras_weights(const std::filesystem::path& file, SavedModel model);

/// The file's bytes.
[[nodiscard]] std::vector<std::byte> keras_weights_image(const SavedModel& model);

/// As load_keras_weights(), but from an open file, in this process.
[[nodiscard]] SavedModel read_keras_weights(const Hdf5Reader& reader, SavedModel model);

}  // namespace lockstep
