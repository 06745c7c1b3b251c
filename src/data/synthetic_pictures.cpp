// Draws coloured pictures for runs without CIFAR's files. A picture is a function of its index alone. Its arithmetic is
// exactly defined by IEEE 754 as that of synthetic_digits.cpp, so every machine produces the same bytes.
#include "core/random.hpp"

#include <lockstep/data/cifar.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr int side = 32;
constexpr std::size_t channels = 3;
constexpr std::size_t bytes = std::size_t{side} * side * channels;
constexpr std::uint64_t seed = 0x50696374757265;                       // "Picture"
constexpr std::uint64_t first_test_subject = std::uint64_t{1} << 32U;  // keeps test pictures independent of train_size

struct Point {
  float x = 0;
  float y = 0;
};

using Colour = std::array<float, channels>;

float between(RandomStream& random, float low, float high) { return low + (high - low) * random.uniform(); }

float length(Point p) { return std::sqrt(p.x * p.x + p.y * p.y); }

// The shapes fill about the box from -1 to 1. Each function is positive inside and negative outside, and near the edge
// about the distance to it.

float disc(Point p) { return 0.9F - length(p); }
float ring(Point p) { return 0.22F - std::abs(length(p) - 0.72F); }
float square(Point p) { return 0.8F - std::max(std::abs(p.x), std::abs(p.y)); }
float triangle(Point p) {
  constexpr float half = 0.5F;
  constexpr float height = 0.8660254F;  // of an equilateral triangle of side 1
  const float sides = std::min(half + half * p.y - height * p.x, half + half * p.y + height * p.x);
  return std::min(sides, half - p.y);
}
float star(Point p) { return std::max(triangle(p), triangle({p.x, -p.y})); }
float cross(Point p) {
  const float across = std::abs(p.x);
  const float along = std::abs(p.y);
  return std::max(std::min(0.27F - across, 0.95F - along), std::min(0.95F - across, 0.27F - along));
}
float crescent(Point p) { return std::min(0.95F - length(p), length({p.x - 0.45F, p.y}) - 0.75F); }
float bowl(Point p) { return std::min(0.95F - length({p.x, p.y + 0.4F}), p.y + 0.4F); }
float hourglass(Point p) {
  return std::min(0.85F - std::abs(p.y), 0.75F * std::abs(p.y) + 0.12F - 0.8F * std::abs(p.x));
}
float bars(Point p) { return std::min(0.9F - std::abs(p.y), 0.2F - std::abs(std::abs(p.x) - 0.55F)); }

constexpr std::array<float (*)(Point), 10> shapes{disc,  ring,     square, triangle,  star,
                                                  cross, crescent, bowl,   hourglass, bars};

/// A texture: how much of a second colour a pixel has, from 0 to 1.
class Texture {
 public:
  explicit Texture(RandomStream& random) : kind_(random.below(5)) {
    const float angle = between(random, -1.0F, 1.0F);
    const float scale = between(random, 0.12F, 0.3F) / (1.0F + angle * angle);
    along_ = {(1.0F - angle * angle) * scale, 2.0F * angle * scale};
    offset_ = {between(random, 0.0F, 8.0F), between(random, 0.0F, 8.0F)};
  }

  [[nodiscard]] float at(float x, float y) const {
    const float u = wave(along_.x * x + along_.y * y + offset_.x);
    const float v = wave(along_.x * y - along_.y * x + offset_.y);
    switch (kind_) {
      case 0: return 0.0F;  // one colour
      case 1: return u;     // stripes
      case 2: return u > 0.5F ? v : 1.0F - v;
      case 3: return u * v;  // dots
      default: return std::clamp(0.5F + 0.03F * (x - side / 2.0F) + 0.2F * (u - 0.5F), 0.0F, 1.0F);
    }
  }

 private:
  /// A triangle wave of period 1.
  static float wave(float x) {
    const float fraction = x - std::floor(x);
    return std::abs(2.0F * fraction - 1.0F);
  }

  std::uint32_t kind_;
  Point along_;
  Point offset_;
};

/// Maps pixels to a shape's box: turned, stretched and moved at random.
class Placement {
 public:
  Placement(RandomStream& random, float min_radius, float max_radius, float reach, float turn) {
    const float radius = between(random, min_radius, max_radius);
    const float stretch = between(random, 0.8F, 1.25F);
    // A rotation without trigonometry: (1 - t^2, 2t) / (1 + t^2) lies on the unit circle.
    const float t = between(random, -turn, turn);
    const float cosine = (1.0F - t * t) / (1.0F + t * t);
    const float sine = 2.0F * t / (1.0F + t * t);
    across_ = {cosine / (radius * stretch), sine / (radius * stretch)};
    down_ = {-sine * stretch / radius, cosine * stretch / radius};
    centre_.x = (side - 1) / 2.0F + between(random, -reach, reach);
    centre_.y = (side - 1) / 2.0F + between(random, -reach, reach);
    radius_ = radius;
  }

  [[nodiscard]] Point operator()(float x, float y) const {
    const float dx = x - centre_.x;
    const float dy = y - centre_.y;
    return {across_.x * dx + across_.y * dy, down_.x * dx + down_.y * dy};
  }

  [[nodiscard]] float radius() const { return radius_; }

 private:
  Point across_, down_, centre_;
  float radius_ = 1;
};

class Picture {
 public:
  explicit Picture(RandomStream& random) {
    for (float& channel : ground_) channel = between(random, 30.0F, 225.0F);
    const Texture texture(random);
    const Colour other = near(random, ground_, 35.0F);
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) paint(x, y, mix(ground_, other, texture.at(pixel(x), pixel(y))), 1.0F);
    }
  }

  /// A spot or a line, too small to be taken for one of the shapes.
  void draw_clutter(RandomStream& random) {
    const Placement place(random, 1.5F, 3.2F, 17.0F, 1.0F);
    const bool is_line = random.below(2) == 0;
    Colour colour{};
    for (float& channel : colour) channel = between(random, 0.0F, 255.0F);
    const float opacity = between(random, 0.4F, 0.9F);
    fill(place, colour, opacity, [is_line](Point p) {
      return is_line ? std::min(0.3F - std::abs(p.y), 2.0F - std::abs(p.x)) : 0.8F - length(p);
    });
  }

  void draw_shape(RandomStream& random, std::uint32_t shape) {
    const Placement place(random, 7.5F, 12.5F, 4.5F, 0.45F);
    const Colour colour = apart(random, ground_);
    const Colour other = near(random, colour, 30.0F);
    const Texture texture(random);
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const float inside = shapes[shape](place(pixel(x), pixel(y))) * place.radius() + 0.5F;
        if (inside > 0.0F) {
          paint(x, y, mix(colour, other, texture.at(pixel(x), pixel(y))), std::min(inside, 1.0F));
        }
      }
    }
  }

  /// Converts colours to bytes; `noise` is the largest change of a pixel.
  void render(RandomStream& random, float noise, std::span<std::uint8_t> image) const {
    for (std::size_t i = 0; i < bytes; i += 4) {
      const std::uint32_t word = random.next();
      for (std::size_t k = 0; k < 4; ++k) {
        const float shift = (static_cast<float>((word >> (8U * k)) & 0xFFU) - 128.0F) * (noise / 128.0F);
        image[i + k] = static_cast<std::uint8_t>(std::clamp(pixels_[i + k] + shift + 0.5F, 0.0F, 255.0F));
      }
    }
  }

 private:
  static float pixel(int index) { return static_cast<float>(index); }

  static Colour mix(const Colour& first, const Colour& second, float amount) {
    Colour mixed{};
    for (std::size_t c = 0; c < channels; ++c) mixed[c] = first[c] + (second[c] - first[c]) * amount;
    return mixed;
  }

  static Colour near(RandomStream& random, const Colour& colour, float difference) {
    Colour other{};
    for (std::size_t c = 0; c < channels; ++c) other[c] = colour[c] + between(random, -difference, difference);
    return other;
  }

  /// A colour that differs from another one by at least 50 in each channel, up or down.
  static Colour apart(RandomStream& random, const Colour& colour) {
    Colour other{};
    for (std::size_t c = 0; c < channels; ++c) {
      const float step = between(random, 50.0F, 110.0F);
      const bool up = colour[c] < step || (colour[c] < 255.0F - step && random.below(2) == 0);
      other[c] = up ? colour[c] + step : colour[c] - step;
    }
    return other;
  }

  template <typename Inside>
  void fill(const Placement& place, const Colour& colour, float opacity, const Inside& inside) {
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const float covered = inside(place(pixel(x), pixel(y))) * place.radius() + 0.5F;
        if (covered > 0.0F) paint(x, y, colour, opacity * std::min(covered, 1.0F));
      }
    }
  }

  void paint(int x, int y, const Colour& colour, float opacity) {
    float* const at = pixels_.data() + (static_cast<std::ptrdiff_t>(y) * side + x) * static_cast<int>(channels);
    for (std::size_t c = 0; c < channels; ++c) at[c] += (colour[c] - at[c]) * opacity;
  }

  Colour ground_{};
  std::array<float, bytes> pixels_{};
};

/// Draws one picture and returns its label.
std::int32_t draw_picture(std::uint64_t subject, std::span<std::uint8_t> image) {
  RandomStream random(seed, RandomPurpose::pictures, subject);
  const std::uint32_t shape = random.below(static_cast<std::uint32_t>(shapes.size()));
  Picture picture(random);
  for (std::uint32_t behind = 3 + random.below(5); behind > 0; --behind) picture.draw_clutter(random);
  picture.draw_shape(random, shape);
  for (std::uint32_t before = random.below(3); before > 0; --before) picture.draw_clutter(random);
  picture.render(random, between(random, 0.0F, 30.0F), image);
  return static_cast<std::int32_t>(shape);
}

Dataset draw_pictures(std::size_t size, std::uint64_t first_subject, const char* source) {
  std::vector<std::uint8_t> images(size * bytes);
  std::vector<std::int32_t> labels(size);
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < size; ++i) {
    labels[i] = draw_picture(first_subject + i, std::span(images).subspan(i * bytes, bytes));
  }
  return {Shape{side, side, channels}, std::move(images), Shape{}, std::move(labels), source};
}

}  // namespace

TrainTestSplit synthetic_pictures(std::size_t train_size, std::size_t test_size) {
  return {draw_pictures(train_size, 0, "the synthetic pictures (train)"),
          draw_pictures(test_size, first_test_subject, "the synthetic pictures (test)")};
}

}  // namespace lockstep
