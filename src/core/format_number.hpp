// Counts and sizes in texts for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// "1 worker", "2 workers"
[[nodiscard]] std::string count_of(std::int64_t count, std::string_view noun);

/// 2,770,634
[[nodiscard]] std::string with_commas(std::int64_t number);

/// "512 B", "1.44 MB": 1 KB is 1024 bytes, as in Keras' summaries.
[[nodiscard]] std::string format_bytes(double bytes);

/// "512 B", "1.4 MB": 1 kB is 1000 bytes, as links count them.
[[nodiscard]] std::string format_traffic(double bytes);

}  // namespace lockstep
