// The table of Keras' model.summary(), as its `rich` renders it without colours.
#include <lockstep/core/error.hpp>
#include <lockstep/nn/sequential.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t columns = 3;
using Widths = std::array<std::size_t, columns>;  ///< of the text, without the blank on either side
using Row = std::array<std::string, columns>;

/// Keras asks for text columns that end at 45 %, 80 % and 100 % of the width; the six blanks and four lines between
/// them are ten characters too many, which rich takes away as 3, 4 and 3.
Widths widths_for(int width) {
  constexpr int least = 20;
  if (width < least) {
    throw UsageError("A model's summary does not fit in " + std::to_string(width) + " columns: give it at least " +
                     std::to_string(least) + ".");
  }
  const int first = static_cast<int>(0.45 * width);
  const int second = static_cast<int>(0.80 * width);
  return {static_cast<std::size_t>(first - 3), static_cast<std::size_t>(second - first - 4),
          static_cast<std::size_t>(width - second - 3)};
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3;) {
    place -= 3;
    text.insert(place, 1, ',');
  }
  return text;
}

std::string memory_size(std::int64_t bytes) {
  constexpr std::array units{"B", "KB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (size >= 1024 && unit + 1 < units.size()) {
    size /= 1024;
    ++unit;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", size, units[unit]);
  return text.data();
}

/// Lines of at most `width` characters, broken between words; a word that is longer is alone on its line.
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

/// The line, filled up with blanks or cut to `width` characters.
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
  constexpr std::int64_t bytes = sizeof(float);
  std::string line = " ";
  line.append(what).append(" params: ").append(with_commas(count));
  return line.append(" (").append(memory_size(count * bytes)).append(")\n");
}

}  // namespace

std::string Sequential::summary(int width) const {
  Table table(widths_for(width));
  table.rule(top);
  table.header({"Layer (type)", "Output Shape", "Param #"});
  table.rule(below_header);
  for (std::size_t i = 1; i < layers_.size(); ++i) {  // Keras leaves the Input out
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
