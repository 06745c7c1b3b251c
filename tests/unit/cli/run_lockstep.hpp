// Calls the program `lockstep` in this process.
#pragma once

#include "cli/command_line.hpp"

#include <sstream>
#include <string>
#include <vector>

namespace lockstep::testing {

struct Result {
  ExitCode code;
  std::string out;
  std::string err;
};

[[nodiscard]] inline Result run_lockstep(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const ExitCode code = run_command_line(args, out, err);
  return {code, out.str(), err.str()};
}

}  // namespace lockstep::testing
