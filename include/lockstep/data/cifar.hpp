// CIFAR-10 and CIFAR-100, or synthetic pictures of the same shape.
#pragma once

#include <lockstep/data/load_dataset.hpp>

#include <cstddef>
#include <filesystem>

namespace lockstep {

/// load_dataset(path) of 32 x 32 x 3 pictures in ten classes; synthetic_pictures() for an empty path. Throws DataError
/// for other shapes and classes.
[[nodiscard]] TrainTestSplit load_cifar10(const std::filesystem::path& path = {});

/// The same in 100 classes. Needs a path.
[[nodiscard]] TrainTestSplit load_cifar100(const std::filesystem::path& path);

/// Renders coloured 32 x 32 pictures of ten shapes, textured, turned and stretched at random, over cluttered grounds.
/// Colours and places say nothing about the class, so that a linear model learns little. Deterministic: the same bytes
/// on every machine.
[[nodiscard]] TrainTestSplit synthetic_pictures(std::size_t train_size = 50000, std::size_t test_size = 10000);

}  // namespace lockstep
