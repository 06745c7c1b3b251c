// See cluster_config.hpp.
#include "cluster/config/cluster_config.hpp"

#include "cluster/config/json_tasks.hpp"
#include "cluster/config/json_text.hpp"
#include "cluster/config/strategy_variable.hpp"
#include "cluster/config/task_table.hpp"
#include "cluster/net/quote.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

namespace {

using json = nlohmann::json;

constexpr std::size_t max_address_bytes = 1024;

[[noreturn]] void refuse(const std::string& what) { throw UsageError("CLUSTER_CONFIG" + what); }

std::string ignored(const std::string& key) {
  return fmt::format(
      "CLUSTER_CONFIG has the key {}, which describes no task and is ignored; the options of lockstep launch and the "
      "limits of the pod decide",
      quote(key));
}

/// A range: {"address": "job-worker-{}:5000", "count": 4}.
void read_range(TaskTable& table, const std::string& type, const json& range, std::vector<std::string>& warnings) {
  table.add_type(type);
  for (const auto& item : range.items()) {
    if (item.key() != "address" && item.key() != "count") warnings.push_back(ignored(item.key()));
  }
  const json address = range.value("address", json());
  const std::string text = address.is_string() ? address.get<std::string>() : std::string();
  const std::size_t index_at = text.find("{}");
  if (index_at == std::string::npos || text.find("{}", index_at + 2) != std::string::npos ||
      text.size() > max_address_bytes) {
    refuse(fmt::format(R"('s {}.address is {}, but must be a "host:port" with {{}} in place of the index)", type,
                       describe_json(address)));
  }
  const auto count = range.find("count");
  if (count == range.end()) refuse(fmt::format("'s {} has an address but no count; add the number of tasks", type));
  if (!count->is_number_integer() && !count->is_string())  // an index may be 1.0 or true, as Python's int() takes them
    refuse(fmt::format("'s {}.count is {}, but must be a whole number", type, describe_json(*count)));
  const int tasks = read_task_index(*count, fmt::format("CLUSTER_CONFIG's {}.count", type));
  table.require_room_for(static_cast<std::size_t>(tasks), type);
  for (int i = 0; i < tasks; ++i) {
    table.add(type, i, text.substr(0, index_at) + std::to_string(i) + text.substr(index_at + 2),
              fmt::format("{}[{}]", type, i));
  }
}

TaskName read_own_task(const Environment& environment, const TaskTable& table) {
  if (const std::string pod = value_of(environment, "POD_NAME"); !pod.empty()) {
    if (const std::optional<TaskName> task = table.task_of_pod(pod)) return *task;
    throw UsageError(
        fmt::format("POD_NAME is {}, but no task of CLUSTER_CONFIG has a host of that name; set it to the pod's name "
                    "(fieldRef metadata.name), or correct CLUSTER_CONFIG",
                    quote(pod)));
  }
  if (const std::string index = value_of(environment, "JOB_COMPLETION_INDEX"); !index.empty()) {
    return {"worker", read_task_index(json(index), "JOB_COMPLETION_INDEX")};
  }
  refuse(
      " is set, but neither POD_NAME nor JOB_COMPLETION_INDEX says which of its tasks this process is; set POD_NAME to "
      "the pod's name (fieldRef metadata.name)");
}

}  // namespace

ClusterSpec read_cluster_config(const Environment& environment) {
  ClusterSpec alone;
  const std::string text = value_of(environment, "CLUSTER_CONFIG");
  if (text.empty()) return alone;
  const json document = parse_json("CLUSTER_CONFIG", text, alone.warnings);
  if (!document.is_object()) {
    refuse(" is " + describe_json(document) + R"(, but must be an object, as {"worker": ["a:5000", "b:5000"]})");
  }
  TaskTable table("CLUSTER_CONFIG");
  for (const auto& item : document.items()) {
    if (item.value().is_object() && (item.value().contains("address") || item.value().contains("count"))) {
      read_range(table, item.key(), item.value(), alone.warnings);
    } else if (item.value().is_structured() || TaskTable::is_type(item.key())) {
      read_tasks(table, item.key(), item.value(), item.key());
    } else {
      alone.warnings.push_back(ignored(item.key()));
    }
  }
  if (table.empty()) {
    if (document.empty()) return alone;
    refuse(" lists no task; list those of the job, or unset it to train alone");
  }
  return table.spec(read_own_task(environment, table), alone.warnings,
                    has_parameter_servers(environment) ? ParameterServers::take_part : ParameterServers::ignored);
}

}  // namespace lockstep
