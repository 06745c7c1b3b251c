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
  std::string name;                           ///< "lockstep launch"
  std::string description;                    ///< above the options
  std::string footer = {};                    ///< below them
  bool takes_operands = false;                ///< otherwise arguments that are not options are refused
  std::string operand_remedy = "see --help";  ///< ends the message about one
};

/// Sets each option from the first source that has it: `args`, LOCKSTEP_<OPTION>, then the row's `template_variable`.
/// An empty variable counts as unset. Returns the operands: the arguments that are neither options nor their values.
/// Throws UsageError or TextRequest.
std::vector<std::string> parse_rows(std::span<const std::string> args, const Environment& environment,
                                    std::span<const OptionRow> rows, const ProgramText& program);

/// A variable that nothing reads.
struct UnknownVariable {
  std::string name;
  std::string hint;          ///< "; did you mean LOCKSTEP_EPOCHS?"; empty if no option's variable resembles it
  bool is_of_other = false;  ///< perhaps: it is a letter away from a template's variable, such as BATCH_SIZE
};

/// Variables LOCKSTEP_... that nothing reads, and misspelt ones: one letter or underscore away from the variable of a
/// row, LOCKSTEPS_EPOCHS, from TF_CONFIG or from a template's that is not set, NUM_TRAIN_EPOCHS. `known` names further
/// options, whose variables are known too. So are those of `lockstep launch`, those that Lockstep's own processes and
/// tests set for each other, and those that Kubernetes sets for services.
[[nodiscard]] std::vector<UnknownVariable> find_unknown_variables(const Environment& environment,
                                                                  std::span<const OptionRow> rows,
                                                                  std::span<const std::string> known);

}  // namespace lockstep
