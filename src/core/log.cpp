// Writes each line with one write(2), so that lines of several ranks on one terminal do not interleave. A logging
// library would bring levels, sinks and patterns that Lockstep does not use.
#include "core/log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "core/environment.hpp"
#include "core/printable.hpp"

namespace lockstep {
namespace {

// Of the process, as its terminal is.
std::atomic<bool> line_is_being_drawn = false;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void write_line(const std::string& severity, const std::string& message) {
  static const int rank = launcher_rank(current_environment());
  const bool interrupts_line = line_is_being_drawn.exchange(false) && isatty(STDERR_FILENO) == 1;
  const std::string line = (interrupts_line ? "\n" : "") + log_line(rank, severity, message);
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (count < 0 && errno != EINTR) return;  // standard error is gone, and there is no other place to report it
    if (count > 0) written += static_cast<std::size_t>(count);
  }
}

}  // namespace

void set_drawing_line(bool is_drawing) noexcept { line_is_being_drawn = is_drawing; }
bool is_drawing_line() noexcept { return line_is_being_drawn; }

void log_info(const std::string& message) { write_line("", message); }
void log_warning(const std::string& message) { write_line("warning", message); }
void log_error(const std::string& message) { write_line("error", message); }

std::string log_line(int rank, const std::string& severity, const std::string& message) {
  std::string line;
  if (rank != 0) line += fmt::format("[rank {}] ", rank);
  if (!severity.empty()) line += severity + ": ";
  return line + printable(message) + "\n";
}

}  // namespace lockstep
