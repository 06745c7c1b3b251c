// See strategy_variable.hpp.
#include "cluster/config/strategy_variable.hpp"

#include <cstddef>
#include <string_view>

namespace lockstep {

bool has_parameter_servers(const Environment& environment) {
  return value_of(environment, strategy_variable) == parameter_server_word;
}

void take_strategy(std::span<const std::string> command, Environment& environment) {
  constexpr std::string_view option = "--strategy";
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string_view word = command[i];
    if (word == option && i + 1 < command.size()) environment[strategy_variable] = command[i + 1];
    if (word.starts_with(option) && word.substr(option.size()).starts_with('='))
      environment[strategy_variable] = word.substr(option.size() + 1);
  }
}

}  // namespace lockstep
