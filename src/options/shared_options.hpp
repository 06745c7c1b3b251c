// The options that all programs share, and the texts and records that derive from their rows.
#pragma once

#include <lockstep/training/options.hpp>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/environment.hpp"
#include "options/option_row.hpp"
#include "options/parse_rows.hpp"
#include "report/history_json.hpp"

namespace lockstep {

/// A program's purpose, which decides on its options.
struct ProgramPurpose {
  std::string sentence = "Trains on every worker of the world";  ///< in its help
  bool trains = true;                                            ///< false: the program has no options for training
  bool is_one_process = false;  ///< which reads no data: it has no options for worlds and data
};

/// A row for each member of `options` that a user can set, in the order of the help. `options` must outlive the rows.
[[nodiscard]] std::vector<OptionRow> shared_options(Options& options);

/// Options::parse, but it neither prints nor exits. `args` are those after the program's name, which is
/// `defaults.program`. Throws UsageError or TextRequest.
[[nodiscard]] Options parse_options(std::span<const std::string> args, const Environment& environment, Options defaults,
                                    std::span<const ProgramOption> program_options = {},
                                    const ProgramPurpose& purpose = {});

/// The arguments of a command, followed by "NAME=value" of each variable that sets an option in a program that it
/// starts. Together they tell one job from another.
[[nodiscard]] std::vector<std::string> with_variables(std::vector<std::string> arguments,
                                                      const Environment& environment);

/// Every option, with underscores in its name, for history.json.
[[nodiscard]] NamedValues describe_options(const Options& options);

/// Name ("--epochs") and text of each option whose value must be the same on all ranks.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> options_to_agree_on(const Options& options);

/// Name and text of each option whose value must be that of the backup for a run to resume.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> options_to_resume_with(const Options& options);

}  // namespace lockstep
