// Enlarges or reduces images: repeats or skips pixels, or interpolates between them. Each row and column of the output
// mixes two of the input, which are equal where pixels are only copied.
#include "backend/cpu/example_kernel.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// For one row or column of the output: low + weight (high - low).
struct Mix {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float weight = 0;
};

/// As Keras: centers of pixels coincide, and beyond the outer centers the edge continues.
std::vector<Mix> mixes_of(std::int64_t input, std::int64_t output, bool interpolates) {
  std::vector<Mix> mixes;
  for (std::int64_t i = 0; i < output; ++i) {
    if (!interpolates) {
      // In float, as TensorFlow: which pixel is the nearest at a tie follows from its rounding.
      const float scale = static_cast<float>(input) / static_cast<float>(output);
      const float center = (static_cast<float>(i) + 0.5F) * scale;
      const std::int64_t nearest = std::min(static_cast<std::int64_t>(std::floor(center)), input - 1);
      mixes.push_back({nearest, nearest, 0});
      continue;
    }
    const double center =
        (static_cast<double>(i) + 0.5) * static_cast<double>(input) / static_cast<double>(output) - 0.5;
    const double low = std::floor(center);
    const auto inside = [&](double row) {
      return std::clamp<std::int64_t>(static_cast<std::int64_t>(row), 0, input - 1);
    };
    mixes.push_back({inside(low), inside(low + 1), static_cast<float>(center - low)});
  }
  return mixes;
}

template <typename T>
class UpsampleKernel final : public ExampleKernel<T> {
 public:
  explicit UpsampleKernel(const KernelScope& scope) : ExampleKernel<T>(scope) {
    const bool interpolates = std::visit(
        []<typename L>(const L& layer) {
          if constexpr (requires { layer.interpolation; }) return layer.interpolation == Interpolation::bilinear;
          return false;
        },
        scope.layer().layer);
    rows_ = mixes_of(this->input().height, this->output().height, interpolates);
    columns_ = mixes_of(this->input().width, this->output().width, interpolates);
    if (scope.is_backward()) {
      plane_ = this->input().height * this->input().width * this->input().block();
      sums_.resize(static_cast<std::size_t>(plane_ * scope.threads));
    }
  }

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    for_each_pixel([&](std::int64_t from, std::int64_t to, const Corners& corners) {
      for (std::int64_t c = 0; c < this->input().block(); ++c) {
        float sum = 0;
        for (int k = 0; k < corners.count; ++k) {
          sum += corners.weights[k] * static_cast<float>(x[from + corners.offsets[k] + c]);
        }
        y[to + c] = sum;
      }
    });
  }
  /// Adds the output's pixels to those that they were mixed from, in the order of memory.
  void run_backward(std::int64_t /*example*/, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    const std::int64_t elements = this->input().elements();
    float* const sums = sums_.data() + omp_get_thread_num() * plane_;
    for (std::int64_t begin = 0; begin < elements; begin += plane_) {
      std::fill_n(sums, plane_, 0.0F);
      for_each_pixel_of_plane(begin / plane_, [&](std::int64_t /*from*/, std::int64_t to, const Corners& corners) {
        for (int k = 0; k < corners.count; ++k) {
          float* const sum = sums + corners.offsets[k];
          for (std::int64_t c = 0; c < this->input().block(); ++c) {
            sum[c] += corners.weights[k] * static_cast<float>(at.y_gradient[to + c]);
          }
        }
      });
      std::copy_n(sums, plane_, at.x_gradient + begin);
    }
  }

 private:
  /// The pixels of the input that make up one pixel of the output.
  struct Corners {
    int count = 0;
    std::array<std::int64_t, 4> offsets{};  ///< in elements, from the beginning of the plane
    std::array<float, 4> weights{};

    void add(std::int64_t offset, float weight) {
      if (weight == 0) return;
      offsets[static_cast<std::size_t>(count)] = offset;
      weights[static_cast<std::size_t>(count++)] = weight;
    }
  };

  template <typename Visit>
  void for_each_pixel(const Visit& visit) const {
    const std::int64_t planes = this->input().channels / this->input().block();
    for (std::int64_t plane = 0; plane < planes; ++plane) for_each_pixel_of_plane(plane, visit);
  }

  /// Calls visit(offset of the input's plane, offset of the output's pixel, corners).
  template <typename Visit>
  void for_each_pixel_of_plane(std::int64_t plane, const Visit& visit) const {
    const TensorSpec& input = this->input();
    const std::int64_t block = input.block();
    const std::int64_t from = plane * input.height * input.width * block;
    std::int64_t to = plane * this->output().height * this->output().width * block;
    for (const Mix& row : rows_) {
      for (const Mix& column : columns_) {
        Corners corners;
        corners.add((row.low * input.width + column.low) * block, (1 - row.weight) * (1 - column.weight));
        corners.add((row.low * input.width + column.high) * block, (1 - row.weight) * column.weight);
        corners.add((row.high * input.width + column.low) * block, row.weight * (1 - column.weight));
        corners.add((row.high * input.width + column.high) * block, row.weight * column.weight);
        visit(from, to, corners);
        to += block;
      }
    }
  }

  std::vector<Mix> rows_;
  std::vector<Mix> columns_;
  std::int64_t plane_ = 0;   ///< elements of one block of the input's channels
  std::vector<float> sums_;  ///< the gradient of one plane, by thread
};

}  // namespace

std::unique_ptr<Kernel> make_upsample(const KernelScope& scope) { return make_for_type<UpsampleKernel>(scope); }

}  // namespace lockstep
