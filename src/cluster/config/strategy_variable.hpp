// LOCKSTEP_STRATEGY, which tells launchers and trainers of one job whether it trains with parameter servers.
#pragma once

#include <span>
#include <string>

#include "core/environment.hpp"

namespace lockstep {

inline constexpr const char* strategy_variable = "LOCKSTEP_STRATEGY";
inline constexpr const char* parameter_server_word = "parameter-server";

/// Whether `strategy_variable` names parameter servers.
[[nodiscard]] bool has_parameter_servers(const Environment& environment);

/// Sets the variable to the last --strategy of a program's command line, if there is one. A launcher does not know the
/// program's other options.
void take_strategy(std::span<const std::string> command, Environment& environment);

}  // namespace lockstep
