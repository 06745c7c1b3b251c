// A job's generations, for its reports. The launcher tells its trainers of those before theirs, in an environment
// variable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr const char* earlier_generations_variable = "LOCKSTEP_EARLIER_GENERATIONS";

struct GenerationRecord {
  std::uint64_t generation = 0;
  std::uint64_t ranks = 0;
  double began = 0;    ///< seconds since 1970-01-01 UTC
  double ended = 0;    ///< 0: not yet; in a report, when that was made
  std::string reason;  ///< why it ended
};

/// A line for each of the last 50, "2 3 1795861169.1 1795861174.5 worker 1 left". Reasons are cut to 200 bytes.
[[nodiscard]] std::string format_generations(std::span<const GenerationRecord> records);

/// Leaves out lines that are not like that.
[[nodiscard]] std::vector<GenerationRecord> parse_generations(const std::string& text);

}  // namespace lockstep
