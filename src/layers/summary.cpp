// The table of Keras' model.summary(), as the library `rich` renders it without colors.
#include "core/format_number.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t columns = 3;
using Widths = std::array<std::size_t, columns>;  ///< of the text, without the blank on either side
using Row = std::array<std::string, columns>;

/// Keras requests text columns that end at 45 %, 80 % and 100 % of the width. The six spaces and four lines between
/// them are ten characters too many, of which rich removes 3, 4 and 3 from the columns.
Widths widths_for(int width) {
  constexpr int min_width = 20;
  if (width < min_width) {
    throw UsageError(
        fmt::format("a model's summary does not fit in {} columns; give it at least {}", width, min_width));
  }
  const int first = static_cast<int>(0.45 * width);
  const int second = static_cast<int>(0.80 * width);
  return {static_cast<std::size_t>(first - 3), static_cast<std::size_t>(second - first - 4),
          static_cast<std::size_t>(width - second - 3)};
}

/// Breaks text between words into lines of at most `width` characters. A longer word gets a separate line.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back(word);
    } else {
      lines.back().append(" ").append(word);
    }
  }
  return lines;
}

enum class Side { left, right };

/// The line padded with blanks or cut to `width` characters.
std::string fit(std::string line, std::size_t width, Side side) {
  if (line.size() > width) return line.substr(0, width - 1).append("…");
  const std::size_t blanks = width - line.size();
  line.insert(side == Side::left ? line.size() : 0, blanks, ' ');
  return line;
}

struct Rule {
  std::string_view left, line, cross, right;
};
constexpr Rule top{"┏", "━", "┳", "┓"};
constexpr Rule below_header{"┡", "━", "╇", "┩"};
constexpr Rule between{"├", "─", "┼", "┤"};
constexpr Rule bottom{"└", "─", "┴", "┘"};

class Table {
 public:
  explicit Table(Widths widths) : widths_(widths) {}

  void rule(const Rule& rule) {
    text_ += rule.left;
    for (std::size_t column = 0; column < columns; ++column) {
      if (column > 0) text_ += rule.cross;
      for (std::size_t i = 0; i < widths_[column] + 2; ++i) text_ += rule.line;
    }
    text_ += rule.right;
    text_ += '\n';
  }

  void header(const Row& cells) { row(cells, "┃", Rows::at_bottom); }
  void body(const Row& cells) { row(cells, "│", Rows::at_top); }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  enum class Rows { at_top, at_bottom };

  void row(const Row& cells, std::string_view bar, Rows place) {
    std::array<std::vector<std::string>, columns> lines;
    std::size_t height = 0;
    for (std::size_t column = 0; column < columns; ++column) {
      lines[column] = wrap(cells[column], widths_[column]);
      height = std::max(height, lines[column].size());
    }
    for (std::vector<std::string>& cell : lines) {
      cell.insert(place == Rows::at_top ? cell.end() : cell.begin(), height - cell.size(), std::string());
    }
    for (std::size_t line = 0; line < height; ++line) {
      text_ += bar;
      for (std::size_t column = 0; column < columns; ++column) {
        const Side side = column + 1 == columns ? Side::right : Side::left;
        text_.append(" ").append(fit(lines[column][line], widths_[column], side)).append(" ").append(bar);
      }
      text_ += '\n';
    }
  }

  Widths widths_;
  std::string text_;
};

std::int64_t parameters_of(const LayerInfo& layer) {
  std::int64_t count = 0;
  for (const ParameterInfo& parameter : layer.parameters) count += parameter.shape.elements();
  return count;
}

std::string footer_line(std::string_view what, std::int64_t count) {
  const auto bytes = static_cast<double>(count) * sizeof(float);
  const std::string size = bytes < 1024 ? fmt::format("{:.2f} B", bytes) : format_bytes(bytes);  // "8.00 B", as Keras
  return fmt::format(" {} params: {} ({})\n", what, with_commas(count), size);
}

}  // namespace

std::string Sequential::summary(int width) const {
  Table table(widths_for(width));
  table.rule(top);
  table.header({"Layer (type)", "Output Shape", "Param #"});
  table.rule(below_header);
  for (std::size_t i = 1; i < layers_.size(); ++i) {  // Keras omits the Input
    const LayerInfo& layer = layers_[i];
    if (i > 1) table.rule(between);
    table.body({layer.name + " (" + layer.class_name + ")", layer.output_shape.to_string_with_batch(),
                with_commas(parameters_of(layer))});
  }
  table.rule(bottom);

  const std::int64_t trainable = count_parameters(true);
  const std::int64_t fixed = count_parameters(false);
  return "Model: \"" + name_ + "\"\n" + table.text() + footer_line("Total", trainable + fixed) +
         footer_line("Trainable", trainable) + footer_line("Non-trainable", fixed);
}

}  // namespace lockstep
