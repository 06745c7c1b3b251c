// Augmentation of images: flips, warps, contrast and brightness, by a draw for each example.
#include "backend/cpu/example_kernel.hpp"
#include "core/augmentation_draw.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <type_traits>
#include <variant>

namespace lockstep {

namespace {

/// Which place in the input a pixel (row, column) of the output shows.
struct AffineMap {
  float x_of_column = 1, x_of_row = 0, x = 0;
  float y_of_column = 0, y_of_row = 1, y = 0;
};

float between(const RandomFactor& factor, float unit) {
  return static_cast<float>(factor.lower) + unit * static_cast<float>(factor.upper - factor.lower);
}

AffineMap map_of(const RandomTranslation& layer, const AugmentationDraw& draw, std::int64_t height,
                 std::int64_t width) {
  AffineMap map;
  map.x = -between(layer.width_factor, draw.second) * static_cast<float>(width);
  map.y = -between(layer.height_factor, draw.first) * static_cast<float>(height);
  return map;
}

AffineMap map_of(const RandomRotation& layer, const AugmentationDraw& draw, std::int64_t height, std::int64_t width) {
  const float angle = between(layer.factor, draw.first) * 2 * std::numbers::pi_v<float>;
  const float center_x = 0.5F * static_cast<float>(width - 1);
  const float center_y = 0.5F * static_cast<float>(height - 1);
  AffineMap map{.x_of_column = std::cos(angle), .x_of_row = -std::sin(angle)};
  map.y_of_column = std::sin(angle);
  map.y_of_row = std::cos(angle);
  map.x = center_x - center_x * map.x_of_column - center_y * map.x_of_row;
  map.y = center_y - center_x * map.y_of_column - center_y * map.y_of_row;
  return map;
}

AffineMap map_of(const RandomZoom& layer, const AugmentationDraw& draw, std::int64_t height, std::int64_t width) {
  AffineMap map;
  map.y_of_row = 1 + between(layer.height_factor, draw.first);
  map.x_of_column = layer.width_factor ? 1 + between(*layer.width_factor, draw.second) : map.y_of_row;
  map.x = 0.5F * static_cast<float>(width - 1) * (1 - map.x_of_column);
  map.y = 0.5F * static_cast<float>(height - 1) * (1 - map.y_of_row);
  return map;
}

/// Of a place beyond an edge of `size` pixels: the pixel that is seen there, or -1 for the constant.
std::int64_t filled_from(std::int64_t place, std::int64_t size, FillMode mode) {
  if (place >= 0 && place < size) return place;
  switch (mode) {
    case FillMode::constant: return -1;
    case FillMode::nearest: return std::clamp<std::int64_t>(place, 0, size - 1);
    case FillMode::reflect: break;
  }
  const std::int64_t period = 2 * size;
  const std::int64_t phase = (place % period + period) % period;
  return phase < size ? phase : period - 1 - phase;
}

template <typename T>
class AugmentKernel final : public ExampleKernel<T> {
 public:
  explicit AugmentKernel(const KernelScope& scope)
      : ExampleKernel<T>(scope),
        layer_(scope.layer().layer),
        ordinal_(static_cast<std::uint32_t>(scope.operation.layer)),
        height_(scope.input().height),
        width_(scope.input().width),
        channels_(scope.input().channels) {}

 protected:
  void run_forward(std::int64_t example, const StepContext& context, const T* x, T* y) override {
    if (!context.training) {
      std::copy_n(x, this->output().elements(), y);
      return;
    }
    const AugmentationDraw draw(context.seed, context.step, ordinal_, this->batch_index(example, context));
    std::visit(
        [&]<typename L>(const L& layer) {
          if constexpr (std::is_same_v<L, RandomFlip>) {
            flip(layer, draw, x, y);
          } else if constexpr (std::is_same_v<L, RandomContrast> || std::is_same_v<L, RandomBrightness>) {
            change_values(layer, draw, x, y);
          } else if constexpr (requires { map_of(layer, draw, height_, width_); }) {
            warp(layer, map_of(layer, draw, height_, width_), x, y);
          } else {
            throw InternalError("an augmentation was lowered from another layer; please report this");
          }
        },
        layer_);
  }
  void run_backward(std::int64_t /*example*/, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& /*at*/) override {
    throw InternalError("an augmentation has no gradient; please report this");
  }

 private:
  void flip(const RandomFlip& layer, const AugmentationDraw& draw, const T* x, T* y) const {
    const bool flips = draw.first <= 0.5F;
    const bool columns = flips && layer.mode != FlipMode::vertical;
    const bool rows = flips && layer.mode != FlipMode::horizontal;
    for (std::int64_t row = 0; row < height_; ++row) {
      for (std::int64_t column = 0; column < width_; ++column) {
        const std::int64_t from = (rows ? height_ - 1 - row : row) * width_ + (columns ? width_ - 1 - column : column);
        std::copy_n(x + from * channels_, channels_, y + (row * width_ + column) * channels_);
      }
    }
  }

  void warp(const auto& layer, const AffineMap& map, const T* x, T* y) const {
    const bool interpolates = layer.interpolation == Interpolation::bilinear;
    const auto constant = static_cast<float>(layer.fill_value);
    const auto value = [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
      row = filled_from(row, height_, layer.fill_mode);
      column = filled_from(column, width_, layer.fill_mode);
      return row < 0 || column < 0 ? constant : static_cast<float>(x[(row * width_ + column) * channels_ + channel]);
    };
    for (std::int64_t row = 0; row < height_; ++row) {
      for (std::int64_t column = 0; column < width_; ++column, y += channels_) {
        const auto i = static_cast<float>(row);
        const auto j = static_cast<float>(column);
        const float at_x = map.x_of_column * j + map.x_of_row * i + map.x;
        const float at_y = map.y_of_column * j + map.y_of_row * i + map.y;
        if (!interpolates) {
          const auto from_row = static_cast<std::int64_t>(std::round(at_y));
          const auto from_column = static_cast<std::int64_t>(std::round(at_x));
          for (std::int64_t c = 0; c < channels_; ++c) y[c] = value(from_row, from_column, c);
          continue;
        }
        const float low_x = std::floor(at_x);
        const float low_y = std::floor(at_y);
        const auto left = static_cast<std::int64_t>(low_x);
        const auto top = static_cast<std::int64_t>(low_y);
        const float right_part = at_x - low_x;
        const float bottom_part = at_y - low_y;
        for (std::int64_t c = 0; c < channels_; ++c) {
          const float above = (1 - right_part) * value(top, left, c) + right_part * value(top, left + 1, c);
          const float below = (1 - right_part) * value(top + 1, left, c) + right_part * value(top + 1, left + 1, c);
          y[c] = (1 - bottom_part) * above + bottom_part * below;
        }
      }
    }
  }

  void change_values(const auto& layer, const AugmentationDraw& draw, const T* x, T* y) const {
    const auto low = static_cast<float>(layer.value_range[0]);
    const auto high = static_cast<float>(layer.value_range[1]);
    const std::int64_t pixels = height_ * width_;
    for (std::int64_t c = 0; c < channels_; ++c) {
      float scale = 1;
      float center = 0;
      float shift = 0;
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(layer)>, RandomContrast>) {
        scale = 1 - static_cast<float>(layer.factor.lower) +
                draw.first * static_cast<float>(layer.factor.lower + layer.factor.upper);
        double sum = 0;
        for (std::int64_t p = 0; p < pixels; ++p) sum += static_cast<float>(x[p * channels_ + c]);
        center = static_cast<float>(sum / static_cast<double>(pixels));
      } else {
        shift = between(layer.factor, draw.first) * (high - low);
      }
      for (std::int64_t p = 0; p < pixels; ++p) {
        const auto value = static_cast<float>(x[p * channels_ + c]);
        y[p * channels_ + c] = std::clamp((value - center) * scale + center + shift, low, high);
      }
    }
  }

  const Layer& layer_;
  std::uint32_t ordinal_;
  std::int64_t height_;
  std::int64_t width_;
  std::int64_t channels_;
};

}  // namespace

std::unique_ptr<Kernel> make_augment(const KernelScope& scope) { return make_for_type<AugmentKernel>(scope); }

}  // namespace lockstep
