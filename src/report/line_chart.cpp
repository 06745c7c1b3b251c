// See line_chart.hpp.
#include "report/line_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

namespace {

// In pixels.
constexpr double width = 420;
constexpr double height = 230;
constexpr double left = 58;
constexpr double right = 12;
constexpr double top = 34;
constexpr double bottom = 30;

/// Round numbers that enclose the values.
struct Scale {
  double low = 0;
  double high = 1;
  double step = 1;
};

/// 1, 2 or 5 times a power of ten.
double round_step(double range) {
  constexpr double steps = 4;
  const double power = std::pow(10, std::floor(std::log10(range / steps)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (range / (factor * power) <= steps) return factor * power;
  }
  return 10 * power;
}

std::optional<Scale> scale_of(const std::vector<ChartLine>& lines) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const ChartLine& line : lines) {
    for (const double value : line.values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (low > high) return std::nullopt;
  if (high - low <= 1e-12 * std::max(std::abs(low), std::abs(high))) {  // one value: a range around it
    const double half = low == 0 ? 1 : std::abs(low) / 10;
    low -= half;
    high += half;
  }
  const double step = round_step(high - low);
  return Scale{std::floor(low / step) * step, std::ceil(high / step) * step, step};
}

class Chart {
 public:
  Chart(const Scale& scale, std::size_t epochs, int first_epoch)
      : scale_(scale), epochs_(epochs), first_epoch_(first_epoch) {}

  [[nodiscard]] std::string grid() const {
    std::string svg;
    const auto count = static_cast<int>(std::lround((scale_.high - scale_.low) / scale_.step));
    for (int i = 0; i <= count; ++i) {
      const double value = scale_.low + i * scale_.step;
      const double at = y(value);
      svg += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)", left, width - right,
                         at, at);
      svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{:.4g}</text>)", left - 6,
                         at + 4, std::abs(value) < scale_.step / 1000 ? 0 : value);
    }
    const std::size_t every = std::max<std::size_t>(
        1, static_cast<std::size_t>(round_step(std::max<double>(4, static_cast<double>(epochs_)))));
    for (std::size_t e = 0; e < epochs_; ++e) {
      const int epoch = first_epoch_ + static_cast<int>(e);
      if (epochs_ > 1 && epoch % static_cast<int>(every) != 0 && e != 0) continue;
      svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x(e),
                         height - bottom + 18, epoch);
    }
    return svg;
  }

  /// Pieces between gaps. A value with gaps on both sides is a dot.
  [[nodiscard]] std::string line(const ChartLine& line) const {
    std::string svg;
    std::string points;
    std::size_t count = 0;
    const auto end_piece = [&] {
      if (count > 1) svg += fmt::format(R"(<polyline class="line {}" points="{}"/>)", line.style, points);
      points.clear();
      count = 0;
    };
    for (std::size_t e = 0; e < line.values.size(); ++e) {
      const double value = line.values[e];
      if (!std::isfinite(value)) {
        end_piece();
        continue;
      }
      points += fmt::format("{:.1f},{:.1f} ", x(e), y(value));
      ++count;
      svg += fmt::format(R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="{}">)", line.style, x(e), y(value),
                         epochs_ > max_dots ? 1 : 3);
      if (epochs_ <= max_titles) {
        svg += fmt::format("<title>epoch {}: {} {:.4g}</title>", first_epoch_ + static_cast<int>(e),
                           html_escaped(line.name), value);
      }
      svg += "</circle>";
    }
    end_piece();
    return svg;
  }

 private:
  static constexpr std::size_t max_dots = 60;
  static constexpr std::size_t max_titles = 500;  ///< which take most of a long run's page

  [[nodiscard]] double x(std::size_t epoch) const {
    const double part = epochs_ > 1 ? static_cast<double>(epoch) / static_cast<double>(epochs_ - 1) : 0.5;
    return left + part * (width - left - right);
  }
  [[nodiscard]] double y(double value) const {
    return height - bottom - (value - scale_.low) / (scale_.high - scale_.low) * (height - top - bottom);
  }

  Scale scale_;
  std::size_t epochs_;
  int first_epoch_;
};

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string line_chart(std::string_view title, const std::vector<ChartLine>& lines, int first_epoch) {
  std::string svg =
      fmt::format(R"(<svg class="chart" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">)",
                  width, height, html_escaped(title));
  svg += fmt::format(R"(<text class="title" x="{:.1f}" y="16">{}</text>)", left, html_escaped(title));
  double legend = width - right;
  for (auto line = lines.rbegin(); lines.size() > 1 && line != lines.rend(); ++line) {
    constexpr double letter = 6.6;
    legend -= letter * static_cast<double>(line->name.size());
    svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="16">{}</text>)", legend, html_escaped(line->name));
    svg += fmt::format(R"(<circle class="dot {}" cx="{:.1f}" cy="12" r="4"/>)", line->style, legend - 8);
    legend -= 24;
  }
  std::size_t epochs = 0;
  for (const ChartLine& line : lines) epochs = std::max(epochs, line.values.size());
  if (const auto scale = scale_of(lines)) {
    const Chart chart(*scale, epochs, first_epoch);
    svg += chart.grid();
    for (const ChartLine& line : lines) svg += chart.line(line);
  } else {
    svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">no finite value</text>)",
                       (left + width - right) / 2, height / 2);
  }
  svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">epoch</text></svg>)", width - right,
                     height - 2);
  return svg;
}

}  // namespace lockstep
