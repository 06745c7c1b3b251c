// One write(2) a line, so that the lines of several ranks on one terminal do not mix. No logging library: levels, sinks
// and patterns would all stay unused.
#include "core/log.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "core/environment.hpp"

namespace lockstep {
namespace {

void write_line(const std::string& severity, const std::string& message) {
  static const int rank = launcher_rank(current_environment());
  const std::string line = log_line(rank, severity, message);
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (count < 0 && errno != EINTR) return;  // nobody listens: there is no other place to complain
    if (count > 0) written += static_cast<std::size_t>(count);
  }
}

}  // namespace

void log_info(const std::string& message) { write_line("", message); }
void log_warning(const std::string& message) { write_line("warning", message); }
void log_error(const std::string& message) { write_line("error", message); }

std::string log_line(int rank, const std::string& severity, const std::string& message) {
  std::string line;
  if (rank != 0) line += "[rank " + std::to_string(rank) + "] ";
  if (!severity.empty()) line += severity + ": ";
  return line + message + "\n";
}

}  // namespace lockstep
