// See generation_record.hpp.
#include "core/generation_record.hpp"

#include "core/parse_number.hpp"
#include "core/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <string_view>

namespace lockstep {

std::string format_generations(std::span<const GenerationRecord> records) {
  constexpr std::size_t most = 50;
  constexpr std::size_t reason_bytes = 200;
  std::string text;
  for (const GenerationRecord& each : records.last(std::min(most, records.size()))) {
    text += fmt::format("{} {} {:.1f} {:.1f} {}\n", each.generation, each.ranks, each.began, each.ended,
                        printable_line(each.reason, reason_bytes));
  }
  return text;
}

std::vector<GenerationRecord> parse_generations(const std::string& text) {
  std::vector<GenerationRecord> records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::array<std::string, 4> words;
    std::istringstream fields(line);
    for (std::string& word : words) std::getline(fields, word, ' ');
    GenerationRecord record;
    std::getline(fields, record.reason);
    const auto generation = parse_number<std::uint64_t>(words[0]);
    const auto ranks = parse_number<std::uint64_t>(words[1]);
    const auto began = parse_number<double>(words[2]);
    const auto ended = parse_number<double>(words[3]);
    if (!generation || !ranks || !began || !ended || !std::isfinite(*began) || !std::isfinite(*ended)) continue;
    record.generation = *generation;
    record.ranks = *ranks;
    record.began = *began;
    record.ended = *ended;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace lockstep
