// Data in memory: MNIST's IDX files, arrays of any shape in Keras' npz, or digits that Lockstep draws itself.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <filesystem>

namespace lockstep {

struct TrainTest {
  Dataset train;
  Dataset test;
};

/// Reads the data set at `path`:
///   - a directory holding {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz (MNIST, Fashion-MNIST);
///     the file names with a dot before idx ("train-images.idx3-ubyte") are taken as well;
///   - a directory holding mnist.npz, or a path ending in .npz with x_train, y_train, x_test, y_test: inputs of any
///     shape, bytes or floats; targets are class indices where they are one whole number an example, else dense;
///   - empty: `embedded_digits()`.
/// Throws DataError (garbled, truncated, wrong sizes; names file and offset) or IoError (missing, unreadable).
[[nodiscard]] TrainTest load_mnist(const std::filesystem::path& path = {});

/// 60,000 + 10,000 images of handwriting-like digits, 28 x 28, rendered from strokes with random affine maps,
/// thickness and noise. Deterministic: the same bytes on every machine. Takes under 2 s on one core.
[[nodiscard]] TrainTest embedded_digits(std::size_t train_size = 60000, std::size_t test_size = 10000);

}  // namespace lockstep
