// Sets options from a command line and the environment. CLI11 splits the command line and formats the help; the rows
// define everything else.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/environment.hpp"
#include "options/option_row.hpp"

namespace lockstep {

/// Thrown for --help and --version: the text to print before the program exits with 0.
struct TextRequest {
  std::string text;
};

/// A program's name and description in --help and --version.
struct ProgramText {
  std::string name;             ///< "lockstep launch"
  std::string description;      ///< above the options
  std::string footer = {};      ///< below them
  bool takes_operands = false;  ///< otherwise arguments that are not options are refused
};

/// Sets each option from the first source that has it: `args`, LOCKSTEP_<OPTION>, then the row's `template_variable`.
/// An empty variable counts as unset. Returns the operands: the arguments that are neither options nor their values.
/// Throws UsageError or TextRequest.
std::vector<std::string> parse_rows(std::span<const std::string> args, const Environment& environment,
                                    std::span<const OptionRow> rows, const ProgramText& program);

/// One sentence for each unknown LOCKSTEP_ variable whose name resembles a row's variable. `known` names further
/// options, whose variables are known too.
[[nodiscard]] std::vector<std::string> find_misspelt_variables(const Environment& environment,
                                                               std::span<const OptionRow> rows,
                                                               std::span<const std::string> known);

}  // namespace lockstep
