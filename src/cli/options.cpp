// See options.hpp.
#include "cli/options.hpp"

#include "options/shared_options.hpp"

#include <vector>

namespace lockstep {

ExitCode print_options(std::span<const std::string> args, std::ostream& out) {
  bool markdown = true;  // the only format, with or without the flag
  const std::vector<OptionRow> rows{
      {.name = "markdown", .help = "print a Markdown table", .value = flag(markdown)},
  };
  parse_rows(args, {}, rows,
             {.name = "lockstep options", .description = "Prints the options that all programs share."});
  out << options_markdown();
  return ExitCode::success;
}

}  // namespace lockstep
