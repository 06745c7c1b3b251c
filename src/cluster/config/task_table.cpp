// See task_table.hpp.
#include "cluster/config/task_table.hpp"

#include "cluster/net/quote.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_tasks = 100'000;
constexpr std::array<std::string_view, 5> known_types{"chief", "master", "worker", "ps", "evaluator"};
constexpr const char* known_types_text = "chief (or master), worker, ps and evaluator";

std::string describe(const Job& job, const std::string& type) {
  if (job.empty()) return "no " + type;
  if (job.size() == 1) return fmt::format("only {} {}", type, job.begin()->first);
  return fmt::format("{} of them, {} to {}", job.size(), job.begin()->first, job.rbegin()->first);
}

}  // namespace

int check_task_index(std::optional<std::int64_t> index, const std::string& where, const std::string& shown) {
  if (!index || *index < 0 || *index > std::numeric_limits<int>::max()) {
    throw UsageError(fmt::format("{} is {}, but must be a whole number of at least 0", where, shown));
  }
  return static_cast<int>(*index);
}

void TaskTable::refuse(const std::string& what) const { throw UsageError(source_ + what); }

bool TaskTable::is_type(const std::string& type) { return std::ranges::find(known_types, type) != known_types.end(); }

void TaskTable::add_type(const std::string& type) {
  if (!is_type(type)) {
    refuse(fmt::format("'s cluster has tasks of the unknown type {}; the types are {}", quote(type), known_types_text));
  }
  jobs_[type];
}

void TaskTable::require_room_for(std::size_t tasks, const std::string& where) const {
  if (tasks > max_tasks) refuse(fmt::format("'s {} lists {} tasks; the limit is {}", where, tasks, max_tasks));
  if (size_ + tasks > max_tasks) refuse(fmt::format("'s cluster lists more than {} tasks", max_tasks));
}

void TaskTable::add(const std::string& type, int index, std::string_view text, const std::string& where) {
  require_room_for(1, where);
  Address address = parse_address(text, fmt::format("{}'s {}", source_, where));
  const std::string name = fmt::format("{} {}", type, index);
  if (jobs_[type].contains(index)) {
    refuse(
        fmt::format("'s {} has index {} twice; give each task its own index", where.substr(0, where.find('[')), index));
  }
  const auto [owner, first] = owners_.emplace(normalized_address(address), name);
  if (!first) {
    refuse(fmt::format("'s cluster gives {} and {} the same address {}; give each task its own", owner->second, name,
                       quote(address.to_string())));
  }
  jobs_[type].emplace(index, std::move(address));
  ++size_;
}

std::optional<TaskName> TaskTable::task_of_pod(std::string_view pod) const {
  std::optional<TaskName> found;
  std::size_t longest = 0;
  for (const auto& [type, job] : jobs_) {
    for (const auto& [index, address] : job) {
      const std::string_view host = address.host;
      const std::string_view label = host.substr(0, host.find('.'));
      const bool matches = pod.starts_with(label) && (pod.size() == label.size() || pod[label.size()] == '-');
      if (!matches || label.size() < longest) continue;
      if (found && label.size() == longest) {
        refuse(
            fmt::format("'s {} {} and {} {} both have the host name {}, so a pod cannot tell which it is; give each "
                        "task a name of its own",
                        found->first, found->second, type, index, quote(label)));
      }
      longest = label.size();
      found = TaskName(type, index);
    }
  }
  return found;
}

void TaskTable::require_one_chief() const {
  for (const char* type : {"chief", "master", "evaluator"}) {
    const auto job = jobs_.find(type);
    if (job == jobs_.end() || job->second.size() <= 1) continue;
    refuse(fmt::format(
        "'s cluster.{} lists {} tasks (the second is {}), but there can be only one; list the others as workers", type,
        job->second.size(), quote(std::next(job->second.begin())->second.to_string())));
  }
  const auto chief = jobs_.find("chief");
  const auto master = jobs_.find("master");
  if (chief == jobs_.end() || master == jobs_.end() || chief->second.empty() || master->second.empty()) return;
  refuse(fmt::format(
      "'s cluster has both a chief ({}) and a master ({}), which are two names for one task; keep the chief",
      quote(chief->second.begin()->second.to_string()), quote(master->second.begin()->second.to_string())));
}

void TaskTable::require_own(const TaskName& own, ParameterServers servers) const {
  const auto& [type, index] = own;
  if (type == "evaluator") {
    refuse(
        "'s task is of type 'evaluator', which does not train: run lockstep evaluate --follow MODEL_DIR for it, which "
        "evaluates each model and backup of the job");
  }
  if (type == "ps" && servers == ParameterServers::ignored) {
    refuse(
        "'s task is of type 'ps', which is not supported without --strategy parameter-server: only the chief and the "
        "workers train; start all tasks with it, or no program for this task");
  }
  if (!is_type(type)) {
    refuse(fmt::format("'s task has the unknown type {}; the types are {}", quote(type), known_types_text));
  }
  const auto job = jobs_.find(type);
  if (job == jobs_.end() || !job->second.contains(index)) {
    refuse(fmt::format("'s task is {} {}, but its cluster lists {}; correct the task's index or the cluster", type,
                       index, describe(job == jobs_.end() ? Job() : job->second, type)));
  }
}

ClusterSpec TaskTable::spec(const TaskName& own, std::vector<std::string> warnings, ParameterServers servers) const {
  require_one_chief();
  require_own(own, servers);
  ClusterSpec spec;
  spec.warnings = std::move(warnings);
  for (const TaskType type : {TaskType::chief, TaskType::master, TaskType::worker}) {
    const auto job = jobs_.find(to_string(type));
    if (job == jobs_.end()) continue;
    for (const auto& [index, address] : job->second) {
      if (own == TaskName(job->first, index)) spec.rank = spec.tasks.size();
      spec.tasks.push_back({type, index, address});
    }
  }
  const auto job = jobs_.find("ps");
  const Job listed = job == jobs_.end() ? Job() : job->second;
  if (servers == ParameterServers::take_part) {
    for (const auto& [index, address] : listed) {
      if (own == TaskName("ps", index)) spec.server = spec.servers.size();
      spec.servers.push_back({TaskType::ps, index, address});
    }
    if (spec.servers.empty()) refuse("'s cluster lists no ps, but --strategy parameter-server needs one; add it");
    if (spec.tasks.empty()) refuse("'s cluster lists no worker; add one");
  } else if (!listed.empty()) {
    spec.warnings.push_back(
        source_ +
        " lists tasks of type 'ps', which is not supported without --strategy parameter-server; they "
        "do not take part in training");
  }
  return spec;
}

}  // namespace lockstep
