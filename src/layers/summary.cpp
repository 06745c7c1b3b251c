// The table of Keras' model.summary(), as the library `rich` renders it without colors.
#include "core/format_number.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/architecture.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Widths = std::vector<std::size_t>;  ///< of each column's text, without the blank on either side
using Row = std::vector<std::string>;

constexpr std::array chain_columns{0.45, 0.80, 1.0};        ///< where Keras ends the columns, as parts of the width
constexpr std::array graph_columns{0.30, 0.56, 0.74, 1.0};  ///< the last one says what feeds a layer
constexpr std::size_t column_of_counts = 2;

/// rich draws two blanks and a line more for each column than Keras asks for, and takes them from the columns in turn,
/// a rounded share from each.
Widths widths_for(int width, std::span<const double> ends) {
  constexpr int min_width = 20;
  if (width < min_width) {
    throw UsageError(
        fmt::format("a model's summary does not fit in {} columns; give it at least {}", width, min_width));
  }
  Widths widths;
  int begin = 0;
  auto excess = static_cast<double>(3 * ends.size() + 1);
  for (std::size_t column = 0; column < ends.size(); ++column) {
    const int end = static_cast<int>(ends[column] * width);
    const double share = std::nearbyint(excess / static_cast<double>(ends.size() - column));
    widths.push_back(static_cast<std::size_t>(std::max(1, end - begin - static_cast<int>(share))));
    excess -= share;
    begin = end;
  }
  return widths;
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
  explicit Table(Widths widths) : widths_(std::move(widths)) {}

  void rule(const Rule& rule) {
    text_ += rule.left;
    for (std::size_t column = 0; column < widths_.size(); ++column) {
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
    std::vector<std::vector<std::string>> lines(widths_.size());
    std::size_t height = 0;
    for (std::size_t column = 0; column < widths_.size(); ++column) {
      lines[column] = wrap(cells[column], widths_[column]);
      height = std::max(height, lines[column].size());
    }
    for (std::vector<std::string>& cell : lines) {
      cell.insert(place == Rows::at_top ? cell.end() : cell.begin(), height - cell.size(), std::string());
    }
    for (std::size_t line = 0; line < height; ++line) {
      text_ += bar;
      for (std::size_t column = 0; column < widths_.size(); ++column) {
        const Side side = column == column_of_counts ? Side::right : Side::left;
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

/// "conv2d[0][0], shared[1][0]": layer, call and output that each call of the layer reads; "-" for an Input.
std::string connections_of(const Architecture& architecture, int layer) {
  std::string connections;
  const std::vector<LayerCall>& calls = architecture.calls();
  for (const LayerCall& call : calls) {
    if (call.layer != layer) continue;
    for (const int input : call.inputs) {
      const auto same_layer = [&](const LayerCall& any) { return any.layer == calls[input].layer; };
      if (!connections.empty()) connections += ", ";
      connections += fmt::format("{}[{}][0]", architecture.layers()[calls[input].layer].name,
                                 std::count_if(calls.begin(), calls.begin() + input, same_layer));
    }
  }
  return connections.empty() ? "-" : connections;
}

std::string footer_line(std::string_view what, std::int64_t count) {
  const auto bytes = static_cast<double>(count) * sizeof(float);
  const std::string size = bytes < 1024 ? fmt::format("{:.2f} B", bytes) : format_bytes(bytes);  // "8.00 B", as Keras
  return fmt::format(" {} params: {} ({})\n", what, with_commas(count), size);
}

}  // namespace

std::string Architecture::summary(int width) const {
  const bool is_chain = this->is_chain();
  Table table(is_chain ? widths_for(width, chain_columns) : widths_for(width, graph_columns));
  table.rule(top);
  Row header{"Layer (type)", "Output Shape", "Param #"};
  if (!is_chain) header.emplace_back("Connected to");
  table.header(header);
  table.rule(below_header);
  const std::size_t first = is_sequential() ? 1 : 0;  // Keras omits the Input of a Sequential model
  for (std::size_t i = first; i < layers_.size(); ++i) {
    const LayerInfo& layer = layers_[i];
    if (i > first) table.rule(between);
    Row row{layer.name + " (" + layer.class_name + ")", layer.output_shape.to_string_with_batch(),
            with_commas(parameters_of(layer))};
    if (!is_chain) row.push_back(connections_of(*this, static_cast<int>(i)));
    table.body(row);
  }
  table.rule(bottom);

  const std::int64_t trainable = count_parameters(true);
  const std::int64_t fixed = count_parameters(false);
  return "Model: \"" + name_ + "\"\n" + table.text() + footer_line("Total", trainable + fixed) +
         footer_line("Trainable", trainable) + footer_line("Non-trainable", fixed);
}

}  // namespace lockstep
