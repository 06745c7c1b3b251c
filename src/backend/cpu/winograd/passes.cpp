// See passes.hpp.
#include "backend/cpu/winograd/passes.hpp"

#include <omp.h>

#include <algorithm>

namespace lockstep::winograd {

namespace {

/// As many tiles as leave the transformed weights room in a second-level cache. Nearby numbers are equally fast.
std::int64_t tiles_of_block(const Geometry& g) {
  constexpr std::int64_t cache_elements = std::int64_t{96} << 10U;
  const std::int64_t fitting = cache_elements / (components * (g.channels + g.out_channels));
  return std::clamp<std::int64_t>(fitting / 8 * 8, 16, max_tiles_of_block);
}

/// The matrices of a block of tiles.
struct Workspace {
  Workspace(const Geometry& g, std::int64_t tiles, float* memory)
      : inputs{memory, Geometry::padded_stride(tiles * g.channels)},
        outputs{memory + components * inputs.stride, Geometry::padded_stride(tiles * g.out_channels)} {}
  [[nodiscard]] std::int64_t elements() const { return components * (inputs.stride + outputs.stride); }

  ComponentMatrices inputs;
  ComponentMatrices outputs;
};

}  // namespace

std::size_t scratch_elements(const Geometry& geometry, int threads) {
  return static_cast<std::size_t>(threads * Workspace(geometry, tiles_of_block(geometry), nullptr).elements());
}

void transform_weights(const Resources& resources, const Geometry& geometry, const float* weights, bool flipped,
                       float* transformed) {
  const KernelTable& kernels = resources.kernels;
  const auto transform = flipped ? kernels.transform_flipped_weights : kernels.transform_weights;
#pragma omp parallel for num_threads(resources.threads) if (resources.threads > 1)
  for (std::int64_t output = 0; output < geometry.out_channels; output += kernels.lanes)
    transform(geometry, output, weights, transformed);
}

void transform_weight_gradients(const Resources& resources, const Geometry& geometry, const float* sums,
                                float* gradients) {
  const KernelTable& kernels = resources.kernels;
#pragma omp parallel for num_threads(resources.threads) if (resources.threads > 1)
  for (std::int64_t output = 0; output < geometry.out_channels; output += kernels.lanes)
    kernels.transform_weight_gradients(geometry, output, sums, gradients);
}

void convolve(const Resources& resources, const Geometry& geometry, std::int64_t images, const ConstImages& x,
              const float* transformed_weights, const Epilogue& epilogue, const Images& y) {
  const KernelTable& kernels = resources.kernels;
  const std::int64_t step = tiles_of_block(geometry);
  const std::int64_t tiles = images * tiles_of_image(geometry.out_height, geometry.out_width);
  const std::int64_t weight_stride = geometry.weight_stride();
#pragma omp parallel num_threads(resources.threads) if (resources.threads > 1)
  {
    Workspace work(geometry, step, resources.scratch);
    const std::int64_t offset = omp_get_thread_num() * work.elements();
    work.inputs.data += offset;
    work.outputs.data += offset;
    TileBlock block;
#pragma omp for schedule(dynamic)
    for (std::int64_t begin = 0; begin < tiles; begin += step) {
      block.assign(geometry.out_height, geometry.out_width, begin, std::min(begin + step, tiles));
      kernels.of(x.is_bfloat16).inputs(geometry, block.tiles(), x.data, work.inputs);
      for (int component = 0; component < components; ++component) {
        kernels.multiply(geometry, block.count(component / points, component % points),
                         work.inputs.data + component * work.inputs.stride,
                         transformed_weights + component * weight_stride,
                         work.outputs.data + component * work.outputs.stride);
      }
      kernels.of(y.is_bfloat16).outputs(geometry, block.tiles(), work.outputs, epilogue, y.data);
    }
  }
}

void add_weight_gradients(const Resources& resources, const Geometry& geometry, std::int64_t images,
                          const ConstImages& x, const ConstImages& y_gradient, float* sums) {
  const KernelTable& kernels = resources.kernels;
  const std::int64_t step = tiles_of_block(geometry);
  const std::int64_t tiles = images * tiles_of_image(geometry.out_height, geometry.out_width);
  const std::int64_t weight_stride = geometry.weight_stride();
  const Workspace work(geometry, step, resources.scratch);
  TileBlock block;
  for (std::int64_t begin = 0; begin < tiles; begin += step) {
    block.assign(geometry.out_height, geometry.out_width, begin, std::min(begin + step, tiles));
    const auto count = static_cast<std::int64_t>(block.tiles().size());
#pragma omp parallel num_threads(resources.threads) if (resources.threads > 1)
    {
#pragma omp for
      for (std::int64_t i = 0; i < resources.threads; ++i) {
        const auto its_tiles = block.tiles().subspan(
            static_cast<std::size_t>(count * i / resources.threads),
            static_cast<std::size_t>(count * (i + 1) / resources.threads - count * i / resources.threads));
        kernels.of(x.is_bfloat16).inputs(geometry, its_tiles, x.data, work.inputs);
        kernels.of(y_gradient.is_bfloat16).output_gradients(geometry, its_tiles, y_gradient.data, work.outputs);
      }
#pragma omp for schedule(dynamic)
      for (int component = 0; component < components; ++component) {
        kernels.multiply_over_tiles(geometry, block.count(component / points, component % points),
                                    work.inputs.data + component * work.inputs.stride,
                                    work.outputs.data + component * work.outputs.stride,
                                    sums + component * weight_stride);
      }
    }
  }
}

}  // namespace lockstep::winograd
