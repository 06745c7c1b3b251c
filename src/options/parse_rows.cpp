// See parse_rows.hpp.
#include "options/parse_rows.hpp"

#include "core/lower_case.hpp"
#include "options/nearest_name.hpp"
#include "options/other_variables.hpp"
#include "report/terminal.hpp"
#include "report/wrap_lines.hpp"

#include <lockstep/core/error.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <string_view>

namespace lockstep {
namespace {

struct GivenArguments {
  std::map<std::string, OptionValue> options;  ///< by name
  std::vector<std::string> operands;
};

[[noreturn]] void refuse_option(const std::string& argument, std::span<const OptionRow> rows) {
  std::vector<std::string> names{"help", "version"};
  for (const OptionRow& row : rows) names.push_back(row.name);
  const std::string option = argument.substr(0, argument.find('='));
  const std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  const std::string hint = did_you_mean("--", name, names);
  throw UsageError("there is no option '" + option + "'" + (hint.empty() ? "; see --help" : hint + " See --help"));
}

/// A variable whose misspelling is to be noticed.
struct ReadVariable {
  std::string name;
  bool is_of_template;
};

std::vector<ReadVariable> variables_of(const Environment& environment, std::span<const OptionRow> rows) {
  std::vector<ReadVariable> variables;
  const auto add_unset = [&](const std::string& name, bool is_of_template) {
    if (!name.empty() && value_of(environment, name).empty()) variables.push_back({name, is_of_template});
  };
  for (const char* cluster : {"TF_CONFIG", "CLUSTER_CONFIG"}) add_unset(cluster, false);
  for (const OptionRow& row : rows) {
    variables.push_back({variable_of_option(row.name), false});
    add_unset(row.template_variable, true);
  }
  return variables;
}

GivenArguments split(std::span<const std::string> args, std::span<const OptionRow> rows, const ProgramText& program) {
  constexpr std::size_t help_column = 32;
  CLI::App app(program.description, program.name);
  app.get_formatter()->column_width(help_column);
  app.set_help_flag();  // removed here and added last, so that the help lists it last
  std::vector<CLI::Option*> options;
  for (const OptionRow& row : rows) {
    const std::string shown = row.shown_default();
    const bool has_default = !shown.empty() && shown != "off" && shown != "?";
    const std::string help = !has_default ? row.help : row.help + " [" + shown + "]";
    CLI::Option* option = row.metavar.empty() ? app.add_flag("--" + row.name, help)
                                              : app.add_option("--" + row.name, help)->type_name(row.metavar);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!row.group.empty()) option->group(row.group);
    if (row.for_developers) option->group("");  // not in the help
    options.push_back(option);
  }
  const std::string last_group = rows.empty() || rows.back().group.empty() ? "Options" : rows.back().group;
  const bool is_subcommand = program.name.starts_with("lockstep ");  // these leave --version to `lockstep` itself
  if (!is_subcommand) {
    app.set_version_flag("--version", program.name + " (Lockstep " LOCKSTEP_VERSION ")", "print the version")
        ->group(last_group);
  }
  app.set_help_flag("-h,--help", "print this")->group(last_group);
  app.footer(program.footer);
  app.allow_extras();
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them in reverse order
  } catch (const CLI::CallForHelp&) {
    const Terminal terminal = detect_terminal(current_environment());
    const std::string help = app.help();
    throw TextRequest{
        terminal.is_interactive ? wrap_lines(help, static_cast<std::size_t>(terminal.columns), help_column) : help};
  } catch (const CLI::CallForVersion& version) {
    throw TextRequest{std::string(version.what()) + "\n"};
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "--epochs: 1 required N missing"
    throw UsageError(text.substr(0, text.find(':')) + " needs a value; see --help");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see --help");
  }
  GivenArguments given;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (options[i]->count() == 0) continue;
    OptionValue value{"--" + rows[i].name, options[i]->results().back()};
    if (value.value.starts_with("--")) throw UsageError(value.source + " needs a value; see --help");
    given.options[rows[i].name] = std::move(value);
  }
  for (const std::string& argument : app.remaining()) {
    if (argument.size() > 1 && argument.starts_with('-')) refuse_option(argument, rows);
    if (!program.takes_operands) {
      throw UsageError("unexpected argument '" + argument + "'; " + program.operand_remedy);
    }
    given.operands.push_back(argument);
  }
  return given;
}

}  // namespace

std::vector<std::string> parse_rows(std::span<const std::string> args, const Environment& environment,
                                    std::span<const OptionRow> rows, const ProgramText& program) {
  GivenArguments given = split(args, rows, program);
  for (const OptionRow& row : rows) {
    if (const auto value = given.options.find(row.name); value != given.options.end()) {
      row.value.set(value->second);
      continue;
    }
    for (const std::string& variable : {variable_of_option(row.name), row.template_variable}) {
      // Manifests often pass variables that were left empty.
      if (const std::string value = value_of(environment, variable); !value.empty()) {
        row.value.set({variable, value});
        break;
      }
    }
  }
  return std::move(given.operands);
}

std::vector<UnknownVariable> find_unknown_variables(const Environment& environment, std::span<const OptionRow> rows,
                                                    std::span<const std::string> known) {
  constexpr std::string_view prefix = "LOCKSTEP_";
  std::vector<std::string> names;
  for (const OptionRow& row : rows) names.push_back(row.name);
  names.insert(names.end(), known.begin(), known.end());
  const std::vector<ReadVariable> read = variables_of(environment, rows);
  std::vector<UnknownVariable> unknown;
  for (const auto& [variable, value] : environment) {
    if (value.empty() || has_other_reader(variable, value) || is_of_another_program(variable)) continue;
    if (!variable.starts_with(prefix)) {
      const auto meant = std::ranges::find_if(
          read, [&given = variable](const ReadVariable& each) { return is_misspelling(given, each.name); });
      if (meant != read.end())
        unknown.push_back({variable, "; did you mean " + meant->name + "?", meant->is_of_template});
      continue;
    }
    const auto names_option = [&given = variable](const std::string& name) {
      return variable_of_option(name) == given;
    };
    if (std::ranges::any_of(names, names_option)) continue;
    std::string option = lower_case(variable.substr(prefix.size()));
    std::ranges::replace(option, '_', '-');
    const std::string nearest = nearest_name(option, names);
    unknown.push_back({variable, nearest.empty() ? "" : "; did you mean " + variable_of_option(nearest) + "?"});
  }
  return unknown;
}

}  // namespace lockstep
