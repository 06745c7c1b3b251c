// Shared by tests of the CUDA kernels' functors. The tests run functors in plain loops and compare each index with
// other code or double precision. Only that each index runs once is left to tests on a device.
#pragma once

#include "backend/cuda/elementwise_functors.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::cuda {

/// The activation functions that can be fused.
inline std::vector<ActivationFunction> elementwise_functions() {
  std::vector<ActivationFunction> functions;
  for (const ActivationFunction function : named_activations()) {
    if (is_elementwise(function)) functions.push_back(function);
  }
  return functions;
}

template <typename Functor>
void for_each(std::size_t count, const Functor& functor) {
  for (std::size_t i = 0; i < count; ++i) functor(static_cast<Index>(i));
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
