// See inspect.hpp.
#include "cli/inspect.hpp"

#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "cli/history_summary.hpp"
#include "cli/inspect_json.hpp"
#include "cli/inspect_text.hpp"
#include "cli/inspected_file.hpp"
#include "cli/model_settings.hpp"
#include "cli/why_unfit.hpp"
#include "core/environment.hpp"
#include "core/format_number.hpp"
#include "core/join_words.hpp"
#include "core/printable.hpp"
#include "options/parse_rows.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

void print(const json& document, std::ostream& out) {
  // Names in files need not be valid UTF-8.
  out << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
}

struct InspectOptions {
  fs::path path;
  bool check = false;
  bool json = false;
  Purpose purpose = Purpose::none;
  ModelSettings settings;  ///< loss, optimizer and metrics in place of the file's
  Options data;            ///< data_dir and input_scale
};

/// One file in a directory's list.
struct Listed {
  std::string name;
  std::string size;
  std::string text;
  json document;
  bool bad = false;
};

/// What makes the file bad, or unfit for the purpose, without its path where that is left to the caller; empty if
/// nothing does.
std::string find_problem(const InspectedFile& file, const InspectOptions& options) {
  const std::string problem = describe_bad_values(file);
  return problem.empty() ? why_unfit(file, options.purpose, options.settings, options.data)
                         : "its " + problem + "; use an earlier copy of it";
}

/// What --json prints of a file: `problem` is also why the command of --for refuses it.
json to_json(const InspectedFile& file, const std::string& problem) {
  json document = lockstep::to_json(file);
  if (document["problem"].is_null() && !problem.empty()) document["problem"] = problem;
  return document;
}

/// Nothing if the file is gone: a running job removes its older backups.
std::optional<Listed> list_file(const fs::path& file, const InspectOptions& options) {
  Listed listed;
  listed.name = file.lexically_relative(options.path).string();
  std::error_code unknown;
  const auto bytes = fs::file_size(file, unknown);
  listed.size = unknown ? "?" : format_bytes(static_cast<double>(bytes));
  const auto refuse = [&](const std::string& problem) {
    listed.bad = true;
    listed.text = "BAD: " + problem;
    listed.document["path"] = file.string();
    listed.document["problem"] = problem;
  };
  try {
    if (file.filename() == "history.json") {
      const HistorySummary summary = read_history(file).value_or(HistorySummary{});
      listed.text = describe(summary);
      listed.document = {{"path", file.string()}, {"history", to_json(summary)}, {"problem", nullptr}};
      return listed;
    }
    const InspectedFile inspected = inspect_file(file);
    listed.text = summarize_file(inspected);
    const std::string problem = find_problem(inspected, options);
    listed.document = to_json(inspected, problem);
    if (problem.empty()) return listed;
    listed.bad = true;
    listed.text += "; BAD: " + problem;
  } catch (const Error& error) {
    if (!fs::exists(file, unknown) && !unknown) return std::nullopt;
    if (error.code() != ExitCode::data && error.code() != ExitCode::io) throw;
    refuse(error.what());
  }
  return listed;
}

void print_list(const std::vector<Listed>& list, const fs::path& directory, std::ostream& out) {
  std::size_t name_width = 0;
  std::size_t size_width = 0;
  for (const Listed& listed : list) {
    name_width = std::max(name_width, listed.name.size());
    size_width = std::max(size_width, listed.size.size());
  }
  std::string text = directory.string() + (list.empty() ? ": no models here\n" : ":\n");
  for (const Listed& listed : list) {
    text += "  " + listed.name + std::string(name_width - listed.name.size(), ' ') + "  " +
            std::string(size_width - listed.size.size(), ' ') + listed.size + "  " + listed.text + '\n';
  }
  out << printable(text);
}

/// An archive has checksums of its own.
bool lacks_checksums(const fs::path& file) {
  try {
    return file.extension() == ".h5" && !Hdf5Reader(file).has_checksums();
  } catch (const Error&) {  // it has gone since it was read
    return false;
  }
}

/// " with --loss and --metrics in place of the file's"; empty if none is given.
std::string describe_overrides(const ModelSettings& settings) {
  std::vector<std::string> given;
  if (settings.optimizer) given.emplace_back("--optimizer");
  if (settings.loss) given.emplace_back("--loss");
  if (settings.metrics) given.emplace_back("--metrics");
  return given.empty() ? "" : " with " + join_words(given, "and") + " in place of the file's";
}

/// What a check of these files says that found nothing.
std::string verdict(const InspectOptions& options, const std::vector<fs::path>& files) {
  const std::string data = options.data.data_dir.empty() ? "" : ", for the data of " + options.data.data_dir.string();
  const std::string purpose =
      options.purpose == Purpose::none
          ? ""
          : fmt::format("; lockstep {} takes {}{}{}", to_string(options.purpose),
                        fs::is_directory(options.path) ? "each" : "it", describe_overrides(options.settings), data);
  const std::ptrdiff_t unprotected = std::ranges::count_if(files, lacks_checksums);
  const std::string warning =
      unprotected == 0 ? ""
                       : fmt::format(". {} no checksums, which only Lockstep writes: changed numbers are not noticed",
                                     files.size() == 1 ? "It has" : fmt::format("{} of the files have", unprotected));
  return fmt::format("Checked: everything was read, no damage was found, all weights are finite{}{}\n", purpose,
                     warning);
}

ExitCode inspect_directory(const InspectOptions& options, std::ostream& out) {
  std::vector<Listed> list;
  const FoundFiles found = find_files(options.path);
  for (const fs::path& file : found.files) {
    if (std::optional<Listed> listed = list_file(file, options)) list.push_back(std::move(*listed));
  }
  if (options.json) {
    json files = json::array();
    for (Listed& listed : list) files.push_back(listed.document);
    json skipped = json::array();
    for (const auto& [path, why] : found.skipped) skipped.push_back({{"path", path.string()}, {"why", why}});
    print({{"path", options.path.string()}, {"files", files}, {"skipped", skipped}}, out);
  } else {
    print_list(list, options.path, out);
    for (const auto& [path, why] : found.skipped)
      out << printable(fmt::format("  {}  skipped: {}\n", path.lexically_relative(options.path).string(), why));
  }
  if (!options.check) return ExitCode::success;
  const auto bad = std::count_if(list.begin(), list.end(), [](const Listed& listed) { return listed.bad; });
  if (bad > 0) {
    throw DataError(fmt::format("{} of {} files in {} are bad; see the list", bad, list.size(), options.path.string()));
  }
  if (!found.skipped.empty()) {
    throw DataError(fmt::format(
        "{} of the paths in {} could not be checked ({}: {}); check them by themselves, or move "
        "them away",
        found.skipped.size(), options.path.string(), found.skipped.front().path.string(), found.skipped.front().why));
  }
  if (list.empty()) throw DataError("there is nothing to check in " + options.path.string() + ": it holds no model");
  if (!options.json) out << verdict(options, found.files);
  return ExitCode::success;
}

ExitCode inspect(const InspectOptions& options, std::ostream& out) {
  std::error_code ignored;
  if (fs::is_directory(options.path, ignored)) return inspect_directory(options, out);
  const InspectedFile file = inspect_file(options.path);
  std::optional<std::uint64_t> iteration;
  if (file.model && file.model->compile_state)
    iteration = static_cast<std::uint64_t>(file.model->compile_state->iteration);
  const std::optional<HistorySummary> history = read_history_of(options.path, iteration);
  const std::string problem = find_problem(file, options);
  if (options.json) {
    json document = to_json(file, problem);
    document["history"] = history ? to_json(*history) : json(nullptr);
    print(document, out);
  } else {
    out << printable(describe_file(file));
    if (history) out << printable("\nhistory.json beside it: " + describe(*history) + "\n");
  }
  if (!options.check) return ExitCode::success;
  if (!problem.empty()) {
    const std::string path = options.path.string();
    throw DataError(problem.find(path) == std::string::npos ? path + ": " + problem : problem);
  }
  if (!options.json) out << verdict(options, {options.path});
  return ExitCode::success;
}

/// An option of the commands as one of inspect.
OptionRow row_of(const ProgramOption& option) {
  return {.name = option.name,
          .metavar = option.metavar,
          .help = "with --for: in place of the file's (no variable sets it)",
          .value = {option.set, [] { return std::string(); }, [] { return NamedValue(); }},
          .default_text = option.shown_default};
}

}  // namespace

ExitCode inspect_models(std::span<const std::string> args, std::ostream& out) {
  InspectOptions options;
  bool compares = false;
  const std::vector<OptionRow> rows{
      {.name = "check",
       .help = "exit with 65 if anything is damaged, could not be read, or a weight is NaN or infinite",
       .value = flag(options.check)},
      {.name = "for",
       .metavar = "COMMAND",
       .help = "with --check: also if lockstep train, evaluate or predict would refuse the model",
       .value = word(options.purpose)},
      row_of(optimizer_option(options.settings)),
      row_of(loss_option(options.settings)),
      row_of(metrics_option(options.settings)),
      {.name = "data-dir",
       .metavar = "PATH",
       .help = "with --for: also if it would refuse this data",
       .value = path(options.data.data_dir)},
      {.name = "input-scale",
       .metavar = "X",
       .help = "with --data-dir: as the command has it",
       .value = positive_number(options.data.input_scale, read_factor),
       .default_text = "none"},
      {.name = "compare",
       .help = "print the differences; exit with 65 unless all weights have the same bits",
       .value = flag(compares)},
      {.name = "json", .help = "print JSON", .value = flag(options.json)},
  };
  for (const char* const name : {"for", "check", "compare", "json"}) {
    // Other variables may be there for the job that wrote the model.
    const std::string variable = variable_of_option(name);
    if (!value_of(current_environment(), variable).empty())
      throw UsageError(fmt::format("lockstep inspect reads no variables; unset {}, and write --{}", variable, name));
  }
  const std::vector<std::string> paths =
      parse_rows(args, {}, rows,
                 {.name = "lockstep inspect",
                  .description = "Shows models: .keras, .h5 and .weights.h5 files, and directories of them.\n"
                                 "lockstep inspect [--check [--for COMMAND [--data-dir PATH]]] [--json] PATH\n"
                                 "lockstep inspect [--json] --compare A B",
                  .takes_operands = true});
  const ModelSettings& settings = options.settings;
  const bool overrides = settings.optimizer || settings.loss || settings.metrics;
  if (compares) {
    if (paths.size() != 2 || options.check || overrides) {
      throw UsageError("--compare needs two files and goes with --json only; see lockstep inspect --help");
    }
    return compare(paths[0], paths[1], options.json, out);
  }
  if (paths.size() != 1) {
    throw UsageError("lockstep inspect needs the path of one model or directory; see lockstep inspect --help");
  }
  if (options.purpose != Purpose::none && !options.check) {
    throw UsageError("--for goes with --check; see lockstep inspect --help");
  }
  if (overrides && (options.purpose == Purpose::none || options.purpose == Purpose::predict)) {
    throw UsageError(
        "--optimizer, --loss and --metrics go with --check --for train or evaluate; see lockstep inspect --help");
  }
  if (settings.optimizer && options.purpose == Purpose::evaluate) {
    throw UsageError("--optimizer goes with --for train; see lockstep inspect --help");
  }
  if (!options.data.data_dir.empty() && options.purpose == Purpose::none) {
    throw UsageError("--data-dir goes with --check --for; see lockstep inspect --help");
  }
  if (options.data.input_scale && options.data.data_dir.empty()) {
    throw UsageError("--input-scale goes with --data-dir; see lockstep inspect --help");
  }
  options.path = paths[0];
  return inspect(options, out);
}

}  // namespace lockstep
