// The program `lockstep`.
#include "cli/command_line.hpp"
#include "cli/jobs.hpp"

#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const std::span<char*> given(argv, static_cast<std::size_t>(argc));
  const std::vector<std::string> args(given.begin() + (given.empty() ? 0 : 1), given.end());
  for (const lockstep::Job& job : lockstep::jobs()) {
    if (args.empty() || args.front() != job.name) continue;
    job.run(std::span(args).subspan(1));
    return 0;
  }
  return static_cast<int>(lockstep::run_command_line(args, std::cout, std::cerr));
}
