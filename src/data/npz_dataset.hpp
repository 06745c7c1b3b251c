// Datasets in .npz archives, with Keras' names for the arrays: x_train, y_train, x_test, ...
#pragma once

#include "data/npy.hpp"

#include <lockstep/data/load_dataset.hpp>

#include <filesystem>

namespace lockstep {

/// x_train, y_train and so on, of a model with several inputs x_train_NAME. Throws DataError, also for an array that
/// is missing, and for one that looks like data but is not used.
[[nodiscard]] TrainTestSplit read_npz(const std::filesystem::path& path, const ArrayNames& names, TestSet test_set);

/// The test set alone.
[[nodiscard]] Dataset read_npz_test_data(const std::filesystem::path& path, const ArrayNames& names);

/// Its inputs alone.
[[nodiscard]] Dataset read_npz_test_inputs(const std::filesystem::path& path, const ArrayNames& names);

/// `shape` without its first dimension, which counts the examples.
[[nodiscard]] Shape without_first(const Shape& shape);

/// An array of inputs as a file holds it; its first dimension counts the examples. Throws DataError if it has none.
[[nodiscard]] InputArray to_input_array(NpyArray array, const std::string& source);

}  // namespace lockstep
