// A chart of values by epoch, as SVG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ChartLine {
  std::string name;            ///< in the legend
  std::string style;           ///< a class of the page's style sheet, which gives the colour
  std::vector<double> values;  ///< by epoch; those that are not finite leave gaps
};

/// An <svg> of lines with a legend, epochs from `first_epoch`, and a round scale. Texts are escaped.
[[nodiscard]] std::string line_chart(std::string_view title, const std::vector<ChartLine>& lines, int first_epoch);

/// `text` with the characters escaped that HTML gives a meaning.
[[nodiscard]] std::string html_escaped(std::string_view text);

}  // namespace lockstep
