// Draws MNIST-like digits for runs without data files. An image is a function of its index alone. The arithmetic is
// exactly defined by IEEE 754 (+ - * / and square root on floats, compiled with -ffp-contract=off), so every machine,
// compiler and number of threads produces the same bytes.
#include "core/random.hpp"
#include "data/glyphs.hpp"

#include <lockstep/data/mnist.hpp>

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

constexpr int side = 28;
constexpr std::size_t pixels = std::size_t{side} * side;
constexpr std::uint64_t seed = 0x4C6F636B73746570;                     // "Lockstep"
constexpr std::uint64_t first_test_subject = std::uint64_t{1} << 32U;  // keeps test images independent of train_size

using Point = GlyphPoint;

float between(RandomStream& random, float low, float high) { return low + (high - low) * random.uniform(); }

/// Difference of two uniform numbers: in (-1, 1), mostly near 0.
float around_zero(RandomStream& random) {
  const float first = random.uniform();
  return first - random.uniform();
}

/// Distorts one glyph at random: shifts the points of a coarse grid over the glyph's box, then maps the box to the
/// image.
class HandwritingDistortion {
 public:
  explicit HandwritingDistortion(RandomStream& random) {
    for (Point& shift : grid_) {
      shift.x = 0.22F * around_zero(random);
      shift.y = 0.22F * around_zero(random);
    }
    // A rotation without trigonometry: (1 - t^2, 2t) / (1 + t^2) lies on the unit circle.
    const float t = 0.2F * around_zero(random);
    const float cosine = (1.0F - t * t) / (1.0F + t * t);
    const float sine = 2.0F * t / (1.0F + t * t);
    const float height = between(random, 7.0F, 10.2F);
    const float width = height * between(random, 0.75F, 1.3F);
    const float shear = -0.08F + 0.45F * around_zero(random);  // handwriting leans to the right more often
    // rotation * shear * scale
    xx_ = cosine * width;
    xy_ = (-cosine * shear - sine) * height;
    yx_ = sine * width;
    yy_ = (cosine - sine * shear) * height;
    constexpr float centre = (side - 1) / 2.0F;
    x0_ = centre + 2.8F * around_zero(random);
    y0_ = centre + 2.4F * around_zero(random);
  }

  [[nodiscard]] Point operator()(Point p) const {
    const Point bent = bend(p);
    return {x0_ + xx_ * bent.x + xy_ * bent.y, y0_ + yx_ * bent.x + yy_ * bent.y};
  }

 private:
  static constexpr std::size_t cells = 3;

  [[nodiscard]] Point bend(Point p) const {
    const float gx = std::clamp((p.x + 1.0F) * (cells / 2.0F), 0.0F, cells - 0.001F);
    const float gy = std::clamp((p.y + 1.0F) * (cells / 2.0F), 0.0F, cells - 0.001F);
    const auto column = static_cast<std::size_t>(gx);
    const auto row = static_cast<std::size_t>(gy);
    const float fx = gx - static_cast<float>(column);
    const float fy = gy - static_cast<float>(row);
    const Point* above = &grid_[row * (cells + 1) + column];
    const Point* below = above + cells + 1;
    const auto mix = [&](float a, float b, float c, float d) {
      return (a * (1.0F - fx) + b * fx) * (1.0F - fy) + (c * (1.0F - fx) + d * fx) * fy;
    };
    return {p.x + mix(above[0].x, above[1].x, below[0].x, below[1].x),
            p.y + mix(above[0].y, above[1].y, below[0].y, below[1].y)};
  }

  std::array<Point, (cells + 1) * (cells + 1)> grid_{};
  float xx_ = 0, xy_ = 0, yx_ = 0, yy_ = 0, x0_ = 0, y0_ = 0;
};

/// The amount of ink on each pixel, from 0 to 1.
class Canvas {
 public:
  /// Draws a line whose edge fades over `softness` pixels. Coordinates and radius are in pixels.
  void draw(Point a, Point b, float radius, float softness) {
    const float reach = radius + 0.5F * softness;
    const int left = pixel_at(std::min(a.x, b.x) - reach);
    const int right = pixel_at(std::max(a.x, b.x) + reach + 1.0F);
    const int top = pixel_at(std::min(a.y, b.y) - reach);
    const int bottom = pixel_at(std::max(a.y, b.y) + reach + 1.0F);
    const float dx = b.x - a.x;
    const float dy = b.y - a.y;
    const float per_length = 1.0F / (dx * dx + dy * dy + 1e-6F);
    const float fade = 1.0F / softness;
    for (int y = top; y < bottom; ++y) {
      float* row = ink_.data() + static_cast<std::ptrdiff_t>(y) * side;
      const float py = static_cast<float>(y) - a.y;
      for (int x = left; x < right; ++x) {
        const float px = static_cast<float>(x) - a.x;
        const float along = std::min(std::max((px * dx + py * dy) * per_length, 0.0F), 1.0F);
        const float qx = px - along * dx;
        const float qy = py - along * dy;
        const float ink = (reach - std::sqrt(qx * qx + qy * qy)) * fade;
        row[x] = std::max(row[x], std::min(ink, 1.0F));
      }
    }
  }

  /// Removes the ink on a disc.
  void erase_disc(Point centre, float radius) {
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const float dx = static_cast<float>(x) - centre.x;
        const float dy = static_cast<float>(y) - centre.y;
        if (dx * dx + dy * dy < radius * radius)
          ink_[static_cast<std::size_t>(y) * side + static_cast<std::size_t>(x)] = 0.0F;
      }
    }
  }

  /// Converts ink to grey levels. Full ink is 255 * `darkness`; `noise` is the largest change of a pixel.
  void render(RandomStream& random, float darkness, float noise, std::span<std::uint8_t> image) const {
    const float full = 255.0F * darkness;
    for (std::size_t i = 0; i < pixels; i += 4) {
      const std::uint32_t word = noise > 0.0F ? random.next() : 0x80808080U;
      for (std::size_t k = 0; k < 4; ++k) {
        const float shift = (static_cast<float>((word >> (8U * k)) & 0xFFU) - 128.0F) * (noise / 128.0F);
        image[i + k] = static_cast<std::uint8_t>(std::clamp(ink_[i + k] * full + shift + 0.5F, 0.0F, 255.0F));
      }
    }
  }

 private:
  static int pixel_at(float coordinate) { return static_cast<int>(std::clamp(coordinate, 0.0F, float{side})); }

  std::array<float, pixels> ink_{};
};

/// The point at `t` in [0, 1] of the Catmull-Rom spline from p1 to p2.
Point spline(Point p0, Point p1, Point p2, Point p3, float t) {
  const auto blend = [t](float a, float b, float c, float d) {
    return 0.5F *
           (2.0F * b + t * ((c - a) + t * ((2.0F * a - 5.0F * b + 4.0F * c - d) + t * (3.0F * (b - c) + d - a))));
  };
  return {blend(p0.x, p1.x, p2.x, p3.x), blend(p0.y, p1.y, p2.y, p3.y)};
}

struct Pen {
  float begin_radius = 1;
  float end_radius = 1;
  float softness = 1;
};

void draw_stroke(GlyphStroke stroke, const HandwritingDistortion& distortion, const Pen& pen, Canvas& canvas) {
  constexpr std::size_t segments = 4;
  const std::size_t last = stroke.size() - 1;
  const float per_segment = 1.0F / static_cast<float>(last * segments);
  Point from = distortion(stroke[0]);
  for (std::size_t i = 0; i < last; ++i) {
    for (std::size_t segment = 1; segment <= segments; ++segment) {
      const Point to = distortion(spline(stroke[i == 0 ? 0 : i - 1], stroke[i], stroke[i + 1],
                                         stroke[std::min(i + 2, last)], static_cast<float>(segment) / segments));
      const float done = static_cast<float>(i * segments + segment) * per_segment;
      canvas.draw(from, to, pen.begin_radius + (pen.end_radius - pen.begin_radius) * done, pen.softness);
      from = to;
    }
  }
}

/// Draws one image and returns its label.
std::int32_t draw_digit(std::uint64_t subject, std::span<std::uint8_t> image) {
  RandomStream random(seed, RandomPurpose::digits, subject);
  const auto digit = static_cast<std::int32_t>(random.below(10));
  const auto styles = glyphs_of(digit);
  const Glyph glyph = styles[random.below(static_cast<std::uint32_t>(styles.size()))];
  const HandwritingDistortion distortion(random);

  Pen pen;
  pen.begin_radius = between(random, 0.6F, 1.7F);
  pen.end_radius = pen.begin_radius * between(random, 0.7F, 1.2F);
  pen.softness = between(random, 0.9F, 1.9F);
  Canvas canvas;
  for (const GlyphStroke stroke : glyph) draw_stroke(stroke, distortion, pen, canvas);

  const auto anywhere = [&] {
    const float x = between(random, 4.0F, side - 4.0F);
    return Point{x, between(random, 4.0F, side - 4.0F)};
  };
  if (random.below(6) == 0) {
    const Point centre = anywhere();
    canvas.erase_disc(centre, between(random, 1.2F, 2.6F));
  }
  if (random.below(6) == 0) {  // a slip of the pen
    const Point from = anywhere();
    const float dx = 5.0F * around_zero(random);
    canvas.draw(from, {from.x + dx, from.y + 5.0F * around_zero(random)}, pen.begin_radius, pen.softness);
  }
  const float darkness = between(random, 0.7F, 1.0F);
  const float noise = random.below(3) == 0 ? between(random, 10.0F, 50.0F) : 0.0F;
  canvas.render(random, darkness, noise, image);
  return digit;
}

Dataset draw_digits(std::size_t size, std::uint64_t first_subject, const char* source) {
  std::vector<std::uint8_t> images(size * pixels);
  std::vector<std::int32_t> labels(size);
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < size; ++i) {
    labels[i] = draw_digit(first_subject + i, std::span(images).subspan(i * pixels, pixels));
  }
  return {Shape{side, side}, std::move(images), Shape{}, std::move(labels), source};
}

}  // namespace

TrainTestSplit synthetic_digits(std::size_t train_size, std::size_t test_size) {
  return {draw_digits(train_size, 0, "the synthetic digits (train)"),
          draw_digits(test_size, first_test_subject, "the synthetic digits (test)")};
}

}  // namespace lockstep
