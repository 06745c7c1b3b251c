// MNIST, or synthetic digits of the same shape.
#pragma once

#include <lockstep/data/load_dataset.hpp>

#include <cstddef>
#include <filesystem>

namespace lockstep {

/// load_dataset(path) of 28 x 28 images, such as MNIST or Fashion-MNIST; synthetic_digits() for an empty path. Throws
/// DataError for examples of another shape.
[[nodiscard]] TrainTestSplit load_mnist(const std::filesystem::path& path = {});

/// Renders 28 x 28 images of handwriting-like digits from strokes with random distortion, thickness and noise.
/// Deterministic: the same bytes on every machine. 70,000 images take less than 2 s on one core.
[[nodiscard]] TrainTestSplit synthetic_digits(std::size_t train_size = 60000, std::size_t test_size = 10000);

}  // namespace lockstep
