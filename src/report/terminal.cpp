// See terminal.hpp.
#include "report/terminal.hpp"

#include "core/lower_case.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace lockstep {
namespace {

bool parent_writes_to_terminal() {
  const std::string path = fmt::format("/proc/{}/fd/1", ::getppid());
  const int fd = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  const bool terminal = ::isatty(fd) == 1;
  ::close(fd);
  return terminal;
}

int columns_of_terminal() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : Terminal().columns;
}

}  // namespace

bool is_utf8_locale(const Environment& environment) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = lower_case(value_of(environment, name));
    if (locale.empty()) continue;
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

Terminal detect_terminal(const Environment& environment) {
  const bool under_mpirun = environment.contains("OMPI_COMM_WORLD_RANK");
  const bool is_interactive = ::isatty(STDOUT_FILENO) == 1 && value_of(environment, "TERM") != "dumb" &&
                              (!under_mpirun || parent_writes_to_terminal());
  return {.is_interactive = is_interactive, .utf8 = is_utf8_locale(environment), .columns = columns_of_terminal()};
}

int summary_width(const Environment& environment) {
  constexpr int margin = 4;
  constexpr int narrowest = 30;
  return std::clamp(detect_terminal(environment).columns - margin, narrowest, Terminal().columns - margin);
}

}  // namespace lockstep
