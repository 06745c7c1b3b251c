// The program `lockstep`.
#include "cli/command_line.hpp"
#include "cli/jobs.hpp"
#include "cluster/pmix_server.hpp"

#include <charconv>
#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace {

/// What the launcher asks of itself, `lockstep pmix-server FD`; of no use to anybody else. Nothing if it is not that.
void serve_pmix_if_asked(const std::vector<std::string>& args) {
  if (args.size() != 2 || args.front() != "pmix-server") return;
  int control = -1;
  const std::string& text = args.back();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), control);
  if (error == std::errc() && end == text.data() + text.size() && control >= 0) lockstep::run_pmix_server(control);
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> given(argv, static_cast<std::size_t>(argc));
  const std::vector<std::string> args(given.begin() + (given.empty() ? 0 : 1), given.end());
  serve_pmix_if_asked(args);
  for (const lockstep::Job& job : lockstep::jobs()) {
    if (args.empty() || args.front() != job.name) continue;
    job.run(std::span(args).subspan(1));
    return 0;
  }
  return static_cast<int>(lockstep::run_command_line(args, std::cout, std::cerr));
}
