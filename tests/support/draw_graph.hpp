// Draws random graphs of layers, which several tests train.
#pragma once

#include "core/random.hpp"

#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/layer.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::testing {

/// Graphs of images: forks, merges, tensors that several layers or one merge read several times, layers that are called
/// several times, nested models, and now and then a second input.
class DrawGraph {
 public:
  /// `for_gpu`: draws only layers that GPUs have.
  explicit DrawGraph(std::uint64_t seed, bool for_gpu = false)
      : random_(seed, RandomPurpose::test, 8), for_gpu_(for_gpu) {}

  /// Has three outputs of one tensor.
  [[nodiscard]] Architecture model();

  [[nodiscard]] std::int64_t below(int bound) { return random_.below(static_cast<std::uint32_t>(bound)); }

 private:
  [[nodiscard]] Conv2D convolution(int channels);
  [[nodiscard]] Tensor any_of(const std::vector<Tensor>& tensors);
  [[nodiscard]] Tensor layer(const std::vector<Tensor>& tensors, int channels);
  [[nodiscard]] const Conv2D& shared_convolution(int channels);
  /// A residual block or a chain, which later calls share.
  [[nodiscard]] const Architecture& nested(const Shape& shape, int channels);
  [[nodiscard]] Tensor merge(const std::vector<Tensor>& tensors);
  /// Joins channels, or repeats a pixel: what GPUs lack.
  [[nodiscard]] Tensor merge_on_cpus(const std::vector<Tensor>& some, const std::vector<Tensor>& tensors);

  RandomStream random_;
  bool for_gpu_;
  std::optional<Conv2D> shared_convolution_;
  BatchNormalization shared_normalization_{{.momentum = 0.5}};
  std::optional<Architecture> nested_;
};

}  // namespace lockstep::testing
