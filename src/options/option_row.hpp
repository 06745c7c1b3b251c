// One row describes one option completely. The parser, the help, environment variables, README's table, the comparison
// between ranks and history.json derive from it.
#pragma once

#include <lockstep/training/options.hpp>

#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/join_words.hpp"
#include "options/option_words.hpp"
#include "options/read_value.hpp"
#include "report/history_json.hpp"

namespace lockstep {

using NamedValue = NamedValues::mapped_type;

/// Connects an option to a C++ variable, which must outlive the binding.
struct OptionBinding {
  std::function<void(const OptionValue&)> set;  ///< throws UsageError
  std::function<std::string()> print;           ///< as a user would write it; empty if the variable has no value
  std::function<NamedValue()> record;           ///< for history.json
};

struct OptionRow {
  std::string name;  ///< without dashes
  std::string group = {};
  std::string metavar = {};  ///< placeholder of the value in the help; empty: a flag
  std::string help;
  OptionBinding value;
  std::string default_text = {};       ///< shown in place of a default that is empty or 0
  std::string template_variable = {};  ///< variable with the same meaning in TensorFlow's job templates
  bool ranks_may_differ = false;       ///< else ranks with different values are refused
  bool training_only = false;          ///< programs that do not train lack it
  bool of_world_or_data = false;       ///< programs of one process that reads no data lack it
  bool resume_needs_equal = false;     ///< a run with another value is another job: it resumes no backup of this one
  bool for_developers = false;         ///< in CONTRIBUTING.md instead of --help and README

  /// What the help shows as the default: the bound variable's value.
  [[nodiscard]] std::string shown_default() const;
};

template <class Number>
[[nodiscard]] OptionBinding whole_number(Number& variable, std::type_identity_t<Number> minimum,
                                         std::type_identity_t<Number> maximum = std::numeric_limits<Number>::max()) {
  using Widest = std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>;
  return {[&variable, minimum, maximum](const OptionValue& given) { variable = read_whole(given, minimum, maximum); },
          [&variable] { return fmt::format("{}", variable); },
          [&variable] { return NamedValue(static_cast<Widest>(variable)); }};
}

/// A finite number greater than 0, as `read` parses it. A variable without a value is recorded as NaN.
[[nodiscard]] OptionBinding positive_number(std::optional<double>& variable,
                                            double (*read)(const OptionValue& given) = read_positive);

/// Seconds from `minimum` to 30 days; with `zero_is_never` also 0.
[[nodiscard]] OptionBinding seconds(double& variable, double minimum, bool zero_is_never = false);

[[nodiscard]] OptionBinding path(std::filesystem::path& variable);
[[nodiscard]] OptionBinding text(std::string& variable);
[[nodiscard]] OptionBinding flag(bool& variable);

/// A value of an enumeration, by its word in OptionWords.
template <class Enum>
[[nodiscard]] OptionBinding word(Enum& variable) {
  const auto set = [&variable](const OptionValue& given) {
    std::vector<std::string> words;
    for (const auto& [value, name] : OptionWords<Enum>::all) {
      if (given.value == name) {
        variable = value;
        return;
      }
      words.emplace_back(name);
    }
    refuse_word(given, given.value, words, join_words(words, "or"));
  };
  return {set, [&variable] { return to_string(variable); }, [&variable] { return NamedValue(to_string(variable)); }};
}

}  // namespace lockstep
