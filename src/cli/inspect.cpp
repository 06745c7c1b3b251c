// See inspect.hpp.
#include "cli/inspect.hpp"

#include "cli/history_summary.hpp"
#include "cli/inspect_json.hpp"
#include "cli/inspect_text.hpp"
#include "cli/inspected_file.hpp"

#include <nlohmann/json.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

void print(const json& document, std::ostream& out) {
  // Names in files may be no UTF-8.
  out << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
}

/// One entry of a directory's list.
struct Listed {
  std::string name;
  std::string size;
  std::string text;
  json document;
  bool bad = false;
};

Listed list_file(const fs::path& file, const fs::path& directory) {
  Listed listed;
  listed.name = file.lexically_relative(directory).string();
  std::error_code unknown;
  const auto bytes = fs::file_size(file, unknown);
  listed.size = unknown ? "?" : print_bytes(bytes);
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
    listed.text = describe_briefly(inspected);
    listed.document = to_json(inspected);
    const std::string problem = describe_bad_values(inspected);
    if (problem.empty()) return listed;
    listed.bad = true;
    listed.text += "; BAD: its " + problem;
  } catch (const DataError& error) {
    refuse(error.what());
  } catch (const IoError& error) {
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

ExitCode inspect_directory(const InspectOptions& options, std::ostream& out) {
  std::vector<Listed> list;
  for (const fs::path& file : find_files(options.path)) list.push_back(list_file(file, options.path));
  if (options.json) {
    json files = json::array();
    for (Listed& listed : list) files.push_back(listed.document);
    print({{"path", options.path.string()}, {"files", files}}, out);
  } else {
    print_list(list, options.path, out);
  }
  if (!options.check) return ExitCode::success;
  const auto bad = std::count_if(list.begin(), list.end(), [](const Listed& listed) { return listed.bad; });
  if (bad > 0) {
    throw DataError(std::to_string(bad) + " of " + std::to_string(list.size()) + " files in " + options.path.string() +
                    " are bad, as the list tells; use earlier copies of them.");
  }
  if (list.empty()) throw DataError("There is nothing to check in " + options.path.string() + ": it holds no model.");
  return ExitCode::success;
}

}  // namespace

ExitCode inspect(const InspectOptions& options, std::ostream& out) {
  std::error_code ignored;
  if (fs::is_directory(options.path, ignored)) return inspect_directory(options, out);
  const InspectedFile file = inspect_file(options.path);
  const std::optional<HistorySummary> history = read_history(options.path.parent_path() / "history.json");
  if (options.json) {
    json document = to_json(file);
    document["history"] = history ? to_json(*history) : json(nullptr);
    print(document, out);
  } else {
    out << printable(describe_file(file));
    if (history) out << printable("\nhistory.json beside it: " + describe(*history) + "\n");
  }
  const std::string problem = describe_bad_values(file);
  if (!options.check || problem.empty()) return ExitCode::success;
  throw DataError(options.path.string() + " is bad: its " + problem + "; use an earlier copy of it.");
}

}  // namespace lockstep
