// The reference's layers that change images at random in training. They draw what the layers under test draw.
#include "core/augmentation_draw.hpp"
#include "support/reference_layers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// One image, channels last.
struct Image {
  std::span<const double> values;
  Shape shape;

  [[nodiscard]] double value(std::int64_t row, std::int64_t column, std::int64_t channel) const {
    return values[at((row * shape[1] + column) * shape[2] + channel)];
  }
};

struct Place {
  std::int64_t row, column, channel;
};

/// A pixel of the changed image.
using Change = std::function<double(const Image& image, const AugmentationDraw& draw, const Place& place)>;

class AugmentationLayer : public Layer {
 public:
  AugmentationLayer(Change change, Shape shape, std::uint32_t ordinal)
      : change_(std::move(change)), shape_(std::move(shape)), ordinal_(ordinal) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    elements_ = input.size();
    if (!pass.training) return input;
    Values output;
    const std::size_t size = at(shape_.elements());
    for (std::size_t example = 0; example * size < input.size(); ++example) {
      const AugmentationDraw draw(pass.seed, pass.step, ordinal_,
                                  pass.batch_offset + static_cast<std::uint32_t>(example));
      const Image image{std::span(input).subspan(example * size, size), shape_};
      for (std::int64_t row = 0; row < shape_[0]; ++row) {
        for (std::int64_t column = 0; column < shape_[1]; ++column) {
          for (std::int64_t channel = 0; channel < shape_[2]; ++channel) {
            output.push_back(change_(image, draw, {row, column, channel}));
          }
        }
      }
    }
    return output;
  }
  Values backward(std::span<const Values>, std::span<Values>, const Values&) override { return Values(elements_); }

 private:
  Change change_;
  Shape shape_;
  std::uint32_t ordinal_;
  std::size_t elements_ = 0;
};

double drawn(const RandomFactor& factor, double unit) { return factor.lower + unit * (factor.upper - factor.lower); }

/// The value at a place that may be beyond the edges, one step after the other.
double filled(const Image& image, std::int64_t row, std::int64_t column, std::int64_t channel, FillMode mode,
              double constant) {
  const auto inside = [mode](std::int64_t place, std::int64_t size) {
    if (mode == FillMode::nearest) return std::clamp<std::int64_t>(place, 0, size - 1);
    while (place < 0 || place >= size) place = place < 0 ? -1 - place : 2 * size - 1 - place;
    return place;
  };
  const bool is_outside = row < 0 || row >= image.shape[0] || column < 0 || column >= image.shape[1];
  if (is_outside && mode == FillMode::constant) return constant;
  return image.value(inside(row, image.shape[0]), inside(column, image.shape[1]), channel);
}

double sampled(const Image& image, double row, double column, std::int64_t channel, const auto& layer) {
  const auto value = [&](double r, double c) {
    return filled(image, static_cast<std::int64_t>(r), static_cast<std::int64_t>(c), channel, layer.fill_mode,
                  layer.fill_value);
  };
  if (layer.interpolation == Interpolation::nearest) return value(std::round(row), std::round(column));
  double sum = 0;
  for (const double r : {std::floor(row), std::floor(row) + 1}) {
    for (const double c : {std::floor(column), std::floor(column) + 1}) {
      sum += (1 - std::abs(row - r)) * (1 - std::abs(column - c)) * value(r, c);
    }
  }
  return sum;
}

double clipped(double value, const PixelOptions& options) {
  return std::clamp(value, options.value_range[0], options.value_range[1]);
}

Change change_of(const RandomFlip& layer) {
  return [layer](const Image& image, const AugmentationDraw& draw, Place place) {
    if (draw.first <= 0.5F && layer.mode != FlipMode::horizontal) place.row = image.shape[0] - 1 - place.row;
    if (draw.first <= 0.5F && layer.mode != FlipMode::vertical) place.column = image.shape[1] - 1 - place.column;
    return image.value(place.row, place.column, place.channel);
  };
}
Change change_of(const RandomTranslation& layer) {
  return [layer](const Image& image, const AugmentationDraw& draw, const Place& place) {
    const double down = drawn(layer.height_factor, draw.first) * static_cast<double>(image.shape[0]);
    const double right = drawn(layer.width_factor, draw.second) * static_cast<double>(image.shape[1]);
    return sampled(image, static_cast<double>(place.row) - down, static_cast<double>(place.column) - right,
                   place.channel, layer);
  };
}
Change change_of(const RandomRotation& layer) {
  return [layer](const Image& image, const AugmentationDraw& draw, const Place& place) {
    const double angle = drawn(layer.factor, draw.first) * 2 * std::numbers::pi;
    const double center_row = static_cast<double>(image.shape[0] - 1) / 2;
    const double center_column = static_cast<double>(image.shape[1] - 1) / 2;
    const double down = static_cast<double>(place.row) - center_row;
    const double right = static_cast<double>(place.column) - center_column;
    return sampled(image, center_row + right * std::sin(angle) + down * std::cos(angle),
                   center_column + right * std::cos(angle) - down * std::sin(angle), place.channel, layer);
  };
}
Change change_of(const RandomZoom& layer) {
  return [layer](const Image& image, const AugmentationDraw& draw, const Place& place) {
    const double rows = 1 + drawn(layer.height_factor, draw.first);
    const double columns = layer.width_factor ? 1 + drawn(*layer.width_factor, draw.second) : rows;
    const double center_row = static_cast<double>(image.shape[0] - 1) / 2;
    const double center_column = static_cast<double>(image.shape[1] - 1) / 2;
    return sampled(image, center_row + rows * (static_cast<double>(place.row) - center_row),
                   center_column + columns * (static_cast<double>(place.column) - center_column), place.channel, layer);
  };
}
Change change_of(const RandomContrast& layer) {
  return [layer](const Image& image, const AugmentationDraw& draw, const Place& place) {
    double mean = 0;
    for (std::int64_t pixel = 0; pixel < image.shape[0] * image.shape[1]; ++pixel) {
      mean += image.value(0, pixel, place.channel) / static_cast<double>(image.shape[0] * image.shape[1]);
    }
    const double factor = 1 - layer.factor.lower + draw.first * (layer.factor.lower + layer.factor.upper);
    return clipped(mean + factor * (image.value(place.row, place.column, place.channel) - mean), layer);
  };
}
Change change_of(const RandomBrightness& layer) {
  return [layer](const Image& image, const AugmentationDraw& draw, const Place& place) {
    const double delta = drawn(layer.factor, draw.first) * (layer.value_range[1] - layer.value_range[0]);
    return clipped(image.value(place.row, place.column, place.channel) + delta, layer);
  };
}

}  // namespace

std::unique_ptr<Layer> make_augmentation(const RandomFlip& layer, const Shape& shape, std::uint32_t ordinal) {
  return std::make_unique<AugmentationLayer>(change_of(layer), shape, ordinal);
}
std::unique_ptr<Layer> make_augmentation(const RandomTranslation& layer, const Shape& shape, std::uint32_t ordinal) {
  return std::make_unique<AugmentationLayer>(change_of(layer), shape, ordinal);
}
std::unique_ptr<Layer> make_augmentation(const RandomRotation& layer, const Shape& shape, std::uint32_t ordinal) {
  return std::make_unique<AugmentationLayer>(change_of(layer), shape, ordinal);
}
std::unique_ptr<Layer> make_augmentation(const RandomZoom& layer, const Shape& shape, std::uint32_t ordinal) {
  return std::make_unique<AugmentationLayer>(change_of(layer), shape, ordinal);
}
std::unique_ptr<Layer> make_augmentation(const RandomContrast& layer, const Shape& shape, std::uint32_t ordinal) {
  return std::make_unique<AugmentationLayer>(change_of(layer), shape, ordinal);
}
std::unique_ptr<Layer> make_augmentation(const RandomBrightness& layer, const Shape& shape, std::uint32_t ordinal) {
  return std::make_unique<AugmentationLayer>(change_of(layer), shape, ordinal);
}

}  // namespace lockstep::reference
