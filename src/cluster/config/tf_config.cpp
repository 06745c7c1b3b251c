// See tf_config.hpp.
#include "cluster/config/tf_config.hpp"

#include "cluster/config/cluster_config.hpp"
#include "cluster/config/json_tasks.hpp"
#include "cluster/config/json_text.hpp"
#include "cluster/config/strategy_variable.hpp"
#include "cluster/config/task_table.hpp"
#include "cluster/net/quote.hpp"
#include "core/lower_case.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

namespace {

using json = nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw UsageError("TF_CONFIG" + what); }

/// The type and index of this process.
TaskName read_own_task(const json& document) {
  constexpr const char* remedy = R"(; add "task": {"type": "worker", "index": 0} with this process' type and index)";
  const auto task = document.find("task");
  if (task == document.end()) refuse(std::string(" has a cluster but no task") + remedy);
  if (!task->is_object()) refuse("'s task is " + describe_json(*task) + ", but must be an object" + remedy);
  const auto type = task->find("type");
  const auto index = task->find("index");
  if (type == task->end()) refuse(std::string("'s task has no type") + remedy);
  if (index == task->end()) refuse(std::string("'s task has no index") + remedy);
  return {type->is_string() ? type->get<std::string>() : describe_json(*type),
          read_task_index(*index, "TF_CONFIG's task.index")};
}

/// A key that looks like the cluster but is another: this process trains alone, and so do all others of the job.
void warn_of_other_cluster(const json& document, std::vector<std::string>& warnings) {
  for (const auto& item : document.items()) {
    if (lower_case(item.key()).find("cluster") == std::string::npos) continue;
    warnings.push_back(
        fmt::format("TF_CONFIG has the key {} but no cluster, so this process trains alone; name the key 'cluster' and "
                    "list all tasks",
                    quote(item.key())));
  }
}

}  // namespace

ClusterSpec parse_tf_config(const std::string& text, ParameterServers servers) {
  ClusterSpec alone;
  if (text.empty()) return alone;
  const json document = parse_json("TF_CONFIG", text, alone.warnings);
  if (!document.is_object()) {
    refuse(" is " + describe_json(document) + R"(, but must be an object {"cluster": ..., "task": ...})");
  }
  const auto cluster = document.find("cluster");
  if (cluster == document.end()) {
    warn_of_other_cluster(document, alone.warnings);
    return alone;
  }
  if (!cluster->is_object()) {
    refuse("'s cluster is " + describe_json(*cluster) +
           R"(, but must be an object, as {"worker": ["a:5000", "b:5000"]})");
  }
  if (cluster->empty()) return alone;
  TaskTable table("TF_CONFIG");
  for (const auto& item : cluster->items()) read_tasks(table, item.key(), item.value(), "cluster." + item.key());
  return table.spec(read_own_task(document), alone.warnings, servers);
}

std::string to_tf_config(const ClusterSpec& spec) {
  if (!spec.rank && !spec.server) return {};
  std::map<std::string, Job> jobs;
  for (const std::vector<Task>* list : {&spec.tasks, &spec.servers}) {
    for (const Task& task : *list) jobs[to_string(task.type)].emplace(task.index, task.address);
  }
  json cluster = json::object();
  for (const auto& [type, job] : jobs) {
    const bool has_gaps = static_cast<std::size_t>(job.rbegin()->first) + 1 != job.size();
    json& addresses = cluster[type] = has_gaps ? json::object() : json::array();
    for (const auto& [index, address] : job) {
      if (has_gaps) {
        addresses[std::to_string(index)] = address.to_string();
      } else {
        addresses.push_back(address.to_string());
      }
    }
  }
  const Task& own = spec.own_task();
  return json{{"cluster", cluster}, {"task", {{"type", to_string(own.type)}, {"index", own.index}}}}.dump();
}

ClusterSpec read_cluster_spec(const Environment& environment) {
  const std::string tf_config = value_of(environment, "TF_CONFIG");
  if (tf_config.empty()) return read_cluster_config(environment);
  ClusterSpec spec = parse_tf_config(
      tf_config, has_parameter_servers(environment) ? ParameterServers::take_part : ParameterServers::ignored);
  if (!value_of(environment, "CLUSTER_CONFIG").empty()) {
    if (spec.tasks.empty()) {
      refuse(" describes no cluster, but CLUSTER_CONFIG is set, too, and would be ignored; unset one of them");
    }
    spec.warnings.emplace_back("CLUSTER_CONFIG is ignored, because TF_CONFIG is set; unset one of them");
  }
  return spec;
}

}  // namespace lockstep
