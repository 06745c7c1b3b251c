// Which options there are: for each its line in the help, and what a value of it may be. Said once for the command line
// and the environment alike, so that both are refused in the same words.
#pragma once

#include <lockstep/training/options.hpp>

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// A value and where it was said: "--epochs", or the name of a variable.
struct GivenValue {
  std::string source;
  std::string value;
};

/// One option: how the help shows it, the templates' variable that means the same, and what its value does. `set`
/// throws UsageError.
struct OptionRule {
  std::string name;  ///< without dashes
  std::string group;
  std::string value;  ///< what stands for it in the help; empty: a flag
  std::string help;
  std::string shown_default;
  std::string template_variable;
  std::function<void(Options&, const GivenValue&)> set;
};

/// Those that all programs share.
[[nodiscard]] std::vector<OptionRule> shared_rules(const Options& defaults);

/// A program's own.
[[nodiscard]] OptionRule rule_of(const ProgramOption& own);

/// What only training needs.
[[nodiscard]] bool is_for_training(const OptionRule& rule);

}  // namespace lockstep
