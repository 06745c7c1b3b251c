// Formats JSON as text. Keys keep their insertion order.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

/// Throws UsageError if a name is not UTF-8, which JSON cannot hold.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value);

}  // namespace lockstep
