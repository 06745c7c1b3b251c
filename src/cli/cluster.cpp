// See cluster.hpp.
#include "cli/cluster.hpp"

#include "cluster/cluster_spec.hpp"
#include "cluster/probe.hpp"
#include "cluster/tf_config.hpp"
#include "core/environment.hpp"

#include <nlohmann/json.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

/// A task and what became of the question whether it answers: nothing where it was not asked.
struct Row {
  Task task;
  std::size_t rank = 0;
  bool own = false;
  std::optional<Probe> probe;
};

/// How a person and a script are told of it, and what a person can do.
struct Telling {
  const char* text;
  const char* name;
  const char* remedy;
};

Telling telling_of(Reach reach) {
  switch (reach) {
    case Reach::answers: return {"answers", "answers", ""};
    case Reach::refused:
      return {"refused", "refused",
              "the host is there, but nothing listens on that port; start that task's program, or mend the port"};
    case Reach::silent:
      return {"no answer", "silent",
              "its host is down, or a firewall or network policy drops what is sent to that port; mend that"};
    case Reach::unreachable:
      return {"unreachable", "unreachable", "there is no way from here to that host; see that both share a network"};
    case Reach::unknown_name:
      return {"unknown name", "unknown_name",
              "no host has that name yet; see that its Service exists under that name in this namespace, and that its "
              "pod has started (a headless Service needs publishNotReadyAddresses)"};
    case Reach::no_name_service: break;
  }
  return {"no name service", "no_name_service",
          "the name service failed or was silent; see /etc/resolv.conf and the cluster's DNS, then try again"};
}

std::string read_file(const std::string& path) {
  constexpr std::size_t enough = (std::size_t{1} << 20U) + 1;  // what is longer is refused anyway
  std::string text(enough, '\0');
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    throw IoError("Cannot read " + path + ": " + std::generic_category().message(errno) + ".");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

ClusterSpec read_cluster(const ClusterOptions& options) {
  if (!options.tf_config) return cluster_of(current_environment());
  const std::string& given = *options.tf_config;
  return parse_tf_config(given.starts_with('@') ? read_file(given.substr(1)) : given);
}

std::vector<Row> make_rows(const ClusterSpec& spec, const ClusterOptions& options) {
  std::vector<Row> rows;
  std::vector<Address> peers;
  for (const Task& task : spec.tasks) {
    rows.push_back({task, rows.size(), rows.size() == spec.rank, {}});
    if (!rows.back().own) peers.push_back(task.address);
  }
  if (!options.probe) return rows;
  std::vector<Probe> probes = probe(peers, options.timeout);
  auto next = probes.begin();
  for (Row& row : rows) {
    if (!row.own) row.probe = std::move(*next++);
  }
  return rows;
}

std::string print_duration(double seconds) {
  std::array<char, 32> text{};
  if (seconds < 1)
    std::snprintf(text.data(), text.size(), "%.1f ms", seconds * 1000);
  else
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return text.data();
}

std::string describe(const Row& row) {
  if (row.own) return "this process";
  if (!row.probe) return "";
  const Probe& probe = *row.probe;
  const std::string said = telling_of(probe.reach).text;
  if (probe.endpoint.empty()) return said + " (" + probe.problem + ")";
  if (probe.reach == Reach::refused) return said + " (" + probe.endpoint + ")";
  if (probe.reach == Reach::unreachable) return said + " (" + probe.endpoint + ": " + probe.problem + ")";
  return said + (probe.reach == Reach::silent ? " in " : " (" + probe.endpoint + " in ") +
         print_duration(probe.seconds) + (probe.reach == Reach::silent ? " (" + probe.endpoint + ")" : ")");
}

void print_text(const ClusterSpec& spec, const std::vector<Row>& rows, std::ostream& out) {
  for (const std::string& warning : spec.warnings) out << "warning: " << warning << '\n';
  if (rows.empty()) {
    out << "TF_CONFIG describes no cluster: this process trains by itself.\n";
    return;
  }
  out << rows.size() << (rows.size() == 1 ? " worker" : " workers") << "; this process is "
      << spec.tasks[*spec.rank].name() << ", the chief" << (spec.is_chief() ? "" : " is " + rows.front().task.name())
      << "\n\n";

  std::vector<std::array<std::string, 4>> lines{{"rank", "task", "address", "state"}};
  for (const Row& row : rows) {
    lines.push_back({std::to_string(row.rank), row.task.name(), row.task.address.to_string(), describe(row)});
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

  std::set<Reach> failures;
  for (const Row& row : rows) {
    if (row.probe && row.probe->reach != Reach::answers) failures.insert(row.probe->reach);
  }
  if (!failures.empty()) out << '\n';
  for (const Reach reach : failures) out << telling_of(reach).text << ": " << telling_of(reach).remedy << '\n';
}

void print_json(const ClusterSpec& spec, const std::vector<Row>& rows, std::ostream& out) {
  json tasks = json::array();
  for (const Row& row : rows) {
    json task{{"rank", row.rank},
              {"type", to_string(row.task.type)},
              {"index", row.task.index},
              {"host", row.task.address.host},
              {"port", row.task.address.port},
              {"chief", row.rank == 0},
              {"state", row.own ? "this_process" : "not_asked"},
              {"endpoint", nullptr},
              {"seconds", nullptr},
              {"problem", nullptr}};
    if (row.probe) {
      task["state"] = telling_of(row.probe->reach).name;
      if (!row.probe->endpoint.empty()) {
        task["endpoint"] = row.probe->endpoint;
        task["seconds"] = row.probe->seconds;
      }
      if (!row.probe->problem.empty()) task["problem"] = row.probe->problem;
    }
    tasks.push_back(std::move(task));
  }
  const json document{
      {"workers", spec.workers()}, {"rank", spec.rank.value_or(0)},
      {"chief", spec.is_chief()},  {"digest", spec.tasks.empty() ? json(nullptr) : json(spec.digest().to_string())},
      {"warnings", spec.warnings}, {"tasks", tasks}};
  out << document.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
}

void require_answers(const std::vector<Row>& rows) {
  constexpr std::size_t most_named = 4;
  std::vector<std::string> missing;
  for (const Row& row : rows) {
    if (row.probe && row.probe->reach != Reach::answers) missing.push_back(row.task.name());
  }
  if (missing.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(missing.size(), most_named); ++i) names += (i > 0 ? ", " : "") + missing[i];
  if (missing.size() > most_named) names += ", ...";
  throw PeerError(std::to_string(missing.size()) + " of " + std::to_string(rows.size() - 1) +
                  " peers did not answer (" + names + "); what is printed tells why, and what to do.");
}

}  // namespace

ExitCode show_cluster(const ClusterOptions& options, std::ostream& out) {
  const ClusterSpec spec = read_cluster(options);
  const std::vector<Row> rows = make_rows(spec, options);
  if (options.json) {
    print_json(spec, rows, out);
  } else {
    print_text(spec, rows, out);
  }
  require_answers(rows);
  return ExitCode::success;
}

}  // namespace lockstep
