// What tests of the CUDA kernels' bodies share. They run the bodies in plain loops: what each index computes, against
// other code or double precision. What remains for a device is that each index runs once.
#pragma once

#include "backend/cuda/elements.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::cuda {

inline constexpr std::array all_functions{ActivationFunction::linear, ActivationFunction::relu,
                                          ActivationFunction::sigmoid, ActivationFunction::tanh};

template <typename Body>
void for_each(std::size_t count, const Body& body) {
  for (std::size_t i = 0; i < count; ++i) body(static_cast<Index>(i));
}

inline std::vector<float> random_floats(RandomStream& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = 2 * random.uniform() - 1;
  return values;
}

inline RandomStream stream_of(std::uint64_t subject) { return {7, RandomPurpose::test, subject}; }

/// The largest difference, relative to the largest expected value.
template <typename Expected>
double error_of(const std::vector<float>& found, const std::vector<Expected>& expected) {
  REQUIRE(found.size() == expected.size());
  double error = 0;
  double scale = 1e-30;
  for (std::size_t i = 0; i < found.size(); ++i) {
    error = std::max(error, std::abs(found[i] - static_cast<double>(expected[i])));
    scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
  }
  return error / scale;
}

}  // namespace lockstep::cuda
