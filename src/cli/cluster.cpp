// See cluster.hpp.
#include "cli/cluster.hpp"

#include "cluster/config/cluster_spec.hpp"
#include "cluster/config/tf_config.hpp"
#include "cluster/net/probe.hpp"
#include "core/environment.hpp"
#include "core/format_number.hpp"
#include "core/regular_file.hpp"
#include "options/parse_rows.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

struct ClusterOptions {
  std::optional<std::string> tf_config;  ///< replaces the variable's value; "@FILE": the contents of FILE
  double timeout = 5;                    ///< seconds to resolve names, and again to connect
  bool no_probe = false;
  bool json = false;
};

ClusterOptions read_options(std::span<const std::string> args) {
  constexpr double max_timeout = 3600;
  ClusterOptions options;
  OptionBinding timeout = seconds(options.timeout, 0);
  timeout.set = [&](const OptionValue& given) {
    options.timeout = read_number(
        given, [=](double number) { return number > 0 && number <= max_timeout; },
        "a number of seconds greater than 0 and at most 3600");
  };
  const std::vector<OptionRow> rows{
      {.name = "tf-config",
       .metavar = "TEXT|@FILE",
       .help = "replaces the variable",
       .value = {[&](const OptionValue& given) { options.tf_config = given.value; }, [] { return std::string(); },
                 [] { return NamedValue(); }},
       .default_text = "TF_CONFIG"},
      {.name = "timeout",
       .metavar = "SECONDS",
       .help = "time to resolve names, and again to connect",
       .value = timeout},
      {.name = "no-probe", .help = "do not connect to any task", .value = flag(options.no_probe)},
      {.name = "json", .help = "print JSON", .value = flag(options.json)},
  };
  parse_rows(
      args, {}, rows,
      {.name = "lockstep cluster",
       .description = "Shows what TF_CONFIG or CLUSTER_CONFIG says, and which of its tasks this host can reach."});
  return options;
}

/// A task and the result of probing it; nullopt if it was not probed. A parameter server has no rank.
struct TaskRow {
  Task task;
  std::optional<std::size_t> rank;
  bool is_self = false;
  std::optional<Probe> probe;
};

/// How a reachability is printed.
struct ReachabilityText {
  const char* text;
  const char* name;    ///< in JSON
  const char* remedy;  ///< empty if the task answers
};

ReachabilityText describe_reachability(Reachability reach) {
  switch (reach) {
    case Reachability::answers: return {"answers", "answers", ""};
    case Reachability::refused:
      return {
          "refused", "refused",
          "the host answers, but nothing listens on that port; start the program of that task, or correct the port"};
    case Reachability::no_answer:
      return {"no answer", "no_answer",
              "the host is down, or a firewall or network policy drops packets to that port; check both"};
    case Reachability::unreachable:
      return {"unreachable", "unreachable", "no route to that host; check that both hosts share a network"};
    case Reachability::unknown_name:
      return {"unknown name", "unknown_name",
              "no host has that name yet; check that its Service exists under that name in this namespace and that its "
              "pod has started (a headless Service needs publishNotReadyAddresses)"};
    case Reachability::no_name_service: break;
  }
  return {"no name service", "no_name_service",
          "the name service failed or timed out; check /etc/resolv.conf and the cluster's DNS, then try again"};
}

std::string read_file(const std::string& path) {
  constexpr std::size_t limit = (std::size_t{1} << 24U);  // far above what parse_tf_config() accepts
  std::string text(limit, '\0');
  require_regular_file(path, "JSON file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    throw IoError(fmt::format("cannot read {}: {}", path, std::generic_category().message(errno)));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

ClusterSpec read_cluster(const ClusterOptions& options) {
  Environment environment = current_environment();
  if (options.tf_config) {
    const std::string& given = *options.tf_config;
    environment["TF_CONFIG"] = given.starts_with('@') ? read_file(given.substr(1)) : given;
    environment.erase("CLUSTER_CONFIG");
  }
  ClusterSpec spec = read_cluster_spec(environment);
  for (const auto& [name, hint, is_of_other] : find_unknown_variables(environment, {}, {})) {
    if (!hint.empty()) spec.warnings.push_back("no option reads the variable " + name + hint);
  }
  return spec;
}

/// Workers that have parameter servers connect to them, and listen nowhere.
bool listens(const TaskRow& row, const ClusterSpec& spec) { return spec.servers.empty() || !row.rank; }

std::vector<TaskRow> make_rows(const ClusterSpec& spec, const ClusterOptions& options) {
  std::vector<TaskRow> rows;
  for (std::size_t i = 0; i < spec.tasks.size(); ++i) rows.push_back({spec.tasks[i], i, i == spec.rank, {}});
  for (std::size_t i = 0; i < spec.servers.size(); ++i)
    rows.push_back({spec.servers[i], std::nullopt, i == spec.server, {}});
  if (options.no_probe) return rows;
  const auto is_probed = [&](const TaskRow& row) { return !row.is_self && listens(row, spec); };
  std::vector<Address> peers;
  for (const TaskRow& row : rows) {
    if (is_probed(row)) peers.push_back(row.task.address);
  }
  std::vector<Probe> probes = probe(peers, options.timeout);
  auto next = probes.begin();
  for (TaskRow& row : rows) {
    if (is_probed(row)) row.probe = std::move(*next++);
  }
  return rows;
}

std::string print_duration(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1000) : fmt::format("{:.1f} s", seconds);
}

std::string describe(const TaskRow& row) {
  if (row.is_self) return "this process";
  if (!row.probe) return "";
  const Probe& probe = *row.probe;
  const std::string state = describe_reachability(probe.reach).text;
  if (probe.endpoint.empty()) return fmt::format("{} ({})", state, probe.problem);
  if (probe.reach == Reachability::refused) return fmt::format("{} ({})", state, probe.endpoint);
  if (probe.reach == Reachability::unreachable) return fmt::format("{} ({}: {})", state, probe.endpoint, probe.problem);
  const std::string duration = print_duration(probe.seconds);
  if (probe.reach == Reachability::no_answer) return fmt::format("{} in {} ({})", state, duration, probe.endpoint);
  return fmt::format("{} ({} in {})", state, probe.endpoint, duration);
}

void print_text(const ClusterSpec& spec, const std::vector<TaskRow>& rows, std::ostream& out) {
  for (const std::string& warning : spec.warnings) out << "warning: " << warning << '\n';
  if (rows.empty()) {
    out << "TF_CONFIG describes no cluster: this process trains alone.\n";
    return;
  }
  out << count_of(spec.workers(), "worker");
  if (!spec.servers.empty()) out << ", " << count_of(spec.servers.size(), "parameter server");
  out << "; this process is " << spec.own_task().name() << ", the chief"
      << (spec.is_chief() ? "" : " is " + rows.front().task.name()) << "\n\n";

  std::vector<std::array<std::string, 4>> lines{{"rank", "task", "address", "state"}};
  for (const TaskRow& row : rows) {
    lines.push_back(
        {row.rank ? std::to_string(*row.rank) : "", row.task.name(), row.task.address.to_string(), describe(row)});
  }
  std::array<std::size_t, 4> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : lines) {
    std::string text = std::string(widths[0] - line[0].size(), ' ') + line[0];
    for (std::size_t i = 1; i < line.size(); ++i) text += "  " + line[i] + std::string(widths[i] - line[i].size(), ' ');
    out << text.substr(0, text.find_last_not_of(' ') + 1) << '\n';
  }

  std::set<Reachability> failures;
  for (const TaskRow& row : rows) {
    if (row.probe && row.probe->reach != Reachability::answers) failures.insert(row.probe->reach);
  }
  if (!failures.empty()) out << '\n';
  for (const Reachability reach : failures)
    out << describe_reachability(reach).text << ": " << describe_reachability(reach).remedy << '\n';
}

void print_json(const ClusterSpec& spec, const std::vector<TaskRow>& rows, std::ostream& out) {
  json tasks = json::array();
  for (const TaskRow& row : rows) {
    json task{{"rank", row.rank ? json(*row.rank) : json(nullptr)},
              {"type", to_string(row.task.type)},
              {"index", row.task.index},
              {"host", row.task.address.host},
              {"port", row.task.address.port},
              {"chief", row.rank == 0},
              {"state", row.is_self ? "this_process" : "not_probed"},
              {"endpoint", nullptr},
              {"seconds", nullptr},
              {"problem", nullptr}};
    if (row.probe) {
      task["state"] = describe_reachability(row.probe->reach).name;
      if (!row.probe->endpoint.empty()) {
        task["endpoint"] = row.probe->endpoint;
        task["seconds"] = row.probe->seconds;
      }
      if (!row.probe->problem.empty()) task["problem"] = row.probe->problem;
    }
    tasks.push_back(std::move(task));
  }
  const json document{{"workers", spec.workers()},
                      {"parameter_servers", spec.servers.size()},
                      {"rank", spec.server ? json(nullptr) : json(spec.rank.value_or(0))},
                      {"chief", spec.is_chief()},
                      {"digest", spec.tasks.empty() ? json(nullptr) : json(spec.digest().to_string())},
                      {"warnings", spec.warnings},
                      {"tasks", tasks}};
  out << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
}

void require_answers(const std::vector<TaskRow>& rows) {
  constexpr std::size_t max_named = 4;
  std::vector<std::string> missing;
  std::size_t probed = 0;
  for (const TaskRow& row : rows) {
    if (row.probe) ++probed;
    if (row.probe && row.probe->reach != Reachability::answers) missing.push_back(row.task.name());
  }
  if (missing.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(missing.size(), max_named); ++i) names += (i > 0 ? ", " : "") + missing[i];
  if (missing.size() > max_named) names += ", ...";
  throw PeerError(fmt::format("{} of {} peers did not answer ({}); see the table above for reasons and remedies",
                              missing.size(), probed, names));
}

}  // namespace

ExitCode show_cluster(std::span<const std::string> args, std::ostream& out) {
  const ClusterOptions options = read_options(args);
  const ClusterSpec spec = read_cluster(options);
  const std::vector<TaskRow> rows = make_rows(spec, options);
  if (options.json) {
    print_json(spec, rows, out);
  } else {
    print_text(spec, rows, out);
  }
  require_answers(rows);
  return ExitCode::success;
}

}  // namespace lockstep
