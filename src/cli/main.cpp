// The program `lockstep`.
#include "cli/command_line.hpp"
#include "cluster/pmix/pmix_server.hpp"
#include "core/bound_spinning.hpp"
#include "options/read_value.hpp"

#include <cstddef>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace {

/// Runs `lockstep pmix-server FD`, which only the launcher starts.
void serve_pmix_if_requested(const std::vector<std::string>& args) {
  if (args.size() != 2 || args.front() != "pmix-server") return;
  const std::optional<int> control = lockstep::parse_number<int>(args.back());
  if (control && *control >= 0) lockstep::run_pmix_server(*control);
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> given(argv, static_cast<std::size_t>(argc));
  const std::vector<std::string> args(given.begin() + (given.empty() ? 0 : 1), given.end());
  serve_pmix_if_requested(args);
  lockstep::bound_spinning();
  return static_cast<int>(lockstep::run_command_line(args, std::cout, std::cerr));
}
