// Finds the command and runs it. Turns every error into one sentence and an exit code.
#include "cli/command_line.hpp"

#include "cli/commands.hpp"
#include "core/printable.hpp"
#include "options/nearest_name.hpp"
#include "options/parse_rows.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <exception>
#include <ostream>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

std::string help_text() {
  std::string text =
      "Trains Keras models on many workers, and inspects models and clusters.\n"
      "Usage: lockstep COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : commands()) text += fmt::format("  {:<10} {}\n", command.name, command.help);
  return text +
         "\nOptions:\n"
         "  --version  print the version\n"
         "  -h,--help  print this\n\n"
         "lockstep COMMAND --help shows the options of a command.\n";
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const bool is_option = name.starts_with('-');
  if (is_option) names = {"--help", "--version"};
  const std::string hint = did_you_mean("", name, names);
  throw UsageError(fmt::format("there is no {} '{}'{}", is_option ? "option" : "command", name,
                               hint.empty() ? "; lockstep --help lists the commands" : hint));
}

ExitCode run_locally(std::span<const std::string> args, std::ostream& out) {
  const auto is_given = [&](const char* option) { return !args.empty() && args.front() == option; };
  if (is_given("--help") || is_given("-h") || is_given("help")) {
    out << help_text();
    return ExitCode::success;
  }
  if (is_given("--version")) {
    out << "lockstep " LOCKSTEP_VERSION "\n";
    return ExitCode::success;
  }
  if (args.empty()) throw UsageError("lockstep needs a command; lockstep --help lists the commands");
  try {
    return std::get<LocalCommand>(find_command(args.front()).run)(args.subspan(1), out);
  } catch (const TextRequest& request) {
    out << request.text;
    return ExitCode::success;
  }
}

const WorldCommand* find_world_command(std::span<const std::string> args) {
  const auto all = commands();
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const Command& command) { return !args.empty() && command.name == args.front(); });
  return found == all.end() ? nullptr : std::get_if<WorldCommand>(&found->run);
}

}  // namespace

ExitCode run_command_line(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  if (const WorldCommand* run = find_world_command(args)) {
    (*run)(args.subspan(1));
    return ExitCode::success;
  }
  try {
    const ExitCode code = run_locally(args, out);
    if (!out.flush()) throw IoError("cannot write to standard output; check for a full disk or a closed pipe");
    return code;
  } catch (const Error& error) {
    err << "error: " + printable(error.what()) + "\n";  // one write: mpirun writes to the same file
    return error.code();
  } catch (const std::exception& error) {
    err << "error: " + printable(error.what()) + "; please report this\n";
    return ExitCode::internal;
  }
}

}  // namespace lockstep
