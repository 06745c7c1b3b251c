// See tf_config.hpp. The rules are those of TensorFlow's TFConfigClusterResolver and multi_worker_util. Beyond them,
// addresses are checked (form, no two alike) and gaps in the indices are closed; `ps` and `evaluator` tasks may be
// listed, but take no part.
#include "cluster/tf_config.hpp"

#include <nlohmann/json.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cluster/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

using json = nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{1} << 20U;
constexpr std::size_t most_tasks = 100'000;

/// The tasks of one type by their index. Jobs by their names.
using Job = std::map<int, Address>;
using Jobs = std::map<std::string, Job>;

[[noreturn]] void refuse(const std::string& what) { throw UsageError("TF_CONFIG" + what); }

std::string show(const json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return value.dump();
}

[[noreturn]] void refuse_json(const std::string& text, const json::parse_error& error) {
  const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
  const bool ends = offset >= text.size();
  const bool quoted = !ends && text[offset] == '\'';
  refuse(" is no JSON: see " + place_in(text, offset) +
         (ends     ? "; it ends too early, a quote or a bracket is not closed"
          : quoted ? "; JSON wants double quotes"
                   : "; check quotes, commas and brackets there"));
}

/// Throws json::parse_error.
json parse_json(const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::out_of_range& error) {  // of a number, which it quotes
    const std::string_view what = error.what();
    const std::size_t number = what.find('\'');
    refuse(" has a number that is too large: " + quote(number < what.size() ? what.substr(number + 1) : what) +
           "; mend it");
  }
}

json read_json(const std::string& text, std::vector<std::string>& warnings) {
  try {
    return parse_json(text);
  } catch (const json::parse_error& error) {
    const std::string mended = without_trailing_commas(text);
    if (mended == text) refuse_json(text, error);
    try {
      json document = parse_json(mended);
      warnings.emplace_back(
          "TF_CONFIG has a comma before a closing bracket, which JSON does not allow: it was ignored");
      return document;
    } catch (const json::parse_error& other) {
      refuse_json(text, other);
    }
  }
}

/// Python's int() of a text: blanks around it, a sign and leading zeros do no harm.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\v\f";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(blanks) + 1 - first);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

/// Python's int() of a JSON value.
std::optional<std::int64_t> to_integer(const json& value) {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  if (value.is_string()) return parse_integer(value.get_ref<const std::string&>());
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number > static_cast<std::uint64_t>(largest) ? largest : static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return {};
  return static_cast<std::int64_t>(std::clamp(std::trunc(value.get<double>()), -1e18, 1e18));
}

int check_index(std::optional<std::int64_t> index, const std::string& where, const std::string& shown) {
  if (!index || *index < 0 || *index > std::numeric_limits<int>::max()) {
    refuse(where + " is " + shown + ", but must be a whole number of at least 0");
  }
  return static_cast<int>(*index);
}

Job read_job(const std::string& name, const json& value) {
  const std::string where = "'s cluster." + name;
  if (!value.is_array() && !value.is_object()) {
    refuse(where + " is " + show(value) + R"(, but must be a list of "host:port")");
  }
  if (value.size() > most_tasks) {
    refuse(where + " lists " + std::to_string(value.size()) + " tasks, more than 100000; mend it");
  }
  Job job;
  for (const auto& item : value.items()) {  // a list's keys are its indices
    const std::string place = where + "[" + (value.is_array() ? item.key() : quote(item.key())) + "]";
    const int index = check_index(parse_integer(item.key()), where + "'s key", quote(item.key()));
    if (!item.value().is_string()) refuse(place + " is " + show(item.value()) + R"(, but must be a "host:port")");
    Address address = parse_address(item.value().get_ref<const std::string&>(), "TF_CONFIG" + place);
    if (!job.emplace(index, std::move(address)).second) {
      refuse(where + " has index " + std::to_string(index) + " twice; give each task an index of its own");
    }
  }
  return job;
}

bool is_known(const std::string& type) {
  constexpr std::array<std::string_view, 5> known{"chief", "master", "worker", "ps", "evaluator"};
  return std::find(known.begin(), known.end(), type) != known.end();
}

void require_at_most_one(const Jobs& jobs, const std::string& name) {
  const auto job = jobs.find(name);
  if (job == jobs.end() || job->second.size() <= 1) return;
  refuse("'s cluster." + name + " lists " + std::to_string(job->second.size()) + " tasks (the second is " +
         quote(std::next(job->second.begin())->second.to_string()) +
         "), but there can be only one; list the others as workers");
}

Jobs read_jobs(const json& cluster) {
  Jobs jobs;
  std::map<std::string, std::string> owners;
  std::size_t tasks = 0;
  for (const auto& item : cluster.items()) {
    if (!is_known(item.key())) {
      refuse("'s cluster has tasks of type " + quote(item.key()) + ", which is unknown; use chief and worker");
    }
    const Job& job = jobs[item.key()] = read_job(item.key(), item.value());
    tasks += job.size();
    if (tasks > most_tasks) refuse("'s cluster lists more than 100000 tasks; mend it");
    for (const auto& [index, address] : job) {
      const std::string name = item.key() + " " + std::to_string(index);
      const auto [owner, first] = owners.emplace(key_of(address), name);
      if (!first) {
        refuse("'s cluster gives " + owner->second + " and " + name + " the same address " +
               quote(address.to_string()) + "; give each task its own");
      }
    }
  }
  for (const char* single : {"chief", "master", "evaluator"}) require_at_most_one(jobs, single);
  if (jobs.contains("chief") && jobs.contains("master") && !jobs["chief"].empty() && !jobs["master"].empty()) {
    refuse("'s cluster has both a chief (" + quote(jobs["chief"].begin()->second.to_string()) + ") and a master (" +
           quote(jobs["master"].begin()->second.to_string()) + "), which are two names for one task; keep the chief");
  }
  return jobs;
}

std::string describe(const Job& job, const std::string& type) {
  if (job.empty()) return "no " + type;
  const std::string first = std::to_string(job.begin()->first);
  if (job.size() == 1) return "only " + type + " " + first;
  return std::to_string(job.size()) + " of them, " + first + " to " + std::to_string(job.rbegin()->first);
}

/// This process' own type and index, checked against the cluster.
std::pair<std::string, int> read_own_task(const json& document, const Jobs& jobs) {
  constexpr const char* remedy = R"(; add "task": {"type": "worker", "index": 0} with this process' own place)";
  const auto task = document.find("task");
  if (task == document.end()) refuse(std::string(" has a cluster but no task") + remedy);
  if (!task->is_object()) refuse("'s task is " + show(*task) + ", but must be an object" + remedy);
  const auto type_value = task->find("type");
  const auto index_value = task->find("index");
  if (type_value == task->end()) refuse(std::string("'s task has no type") + remedy);
  if (index_value == task->end()) refuse(std::string("'s task has no index") + remedy);
  const std::string type = type_value->is_string() ? type_value->get<std::string>() : show(*type_value);
  if (type == "ps" || type == "evaluator") {
    refuse("'s task is of type '" + type + "', which is not supported: Lockstep trains on the chief and the workers " +
           "alone; start no program for it");
  }
  if (!is_known(type)) refuse("'s task is of type " + quote(type) + ", which is unknown; use chief or worker");
  const int index = check_index(to_integer(*index_value), "'s task.index", show(*index_value));
  const auto job = jobs.find(type);
  if (job == jobs.end() || !job->second.contains(index)) {
    refuse("'s task is " + type + " " + std::to_string(index) + ", but its cluster lists " +
           describe(job == jobs.end() ? Job() : job->second, type) + "; mend task.index or the cluster");
  }
  return {type, index};
}

void warn_of_idle_tasks(const Jobs& jobs, std::vector<std::string>& warnings) {
  for (const char* type : {"ps", "evaluator"}) {
    const auto job = jobs.find(type);
    if (job == jobs.end() || job->second.empty()) continue;
    warnings.push_back("TF_CONFIG lists tasks of type '" + std::string(type) +
                       "', which is not supported: they take no part in training");
  }
}

}  // namespace

ClusterSpec parse_tf_config(const std::string& text) {
  ClusterSpec spec;
  if (text.empty()) return spec;
  if (text.size() > most_bytes) {
    refuse(" has " + std::to_string(text.size()) + " bytes, more than 1048576, and begins with " + quote(text) +
           "; mend it");
  }
  const json document = read_json(text, spec.warnings);
  if (!document.is_object()) {
    refuse(" is " + show(document) + R"(, but must be an object {"cluster": ..., "task": ...})");
  }
  const auto cluster = document.find("cluster");
  if (cluster == document.end()) return spec;
  if (!cluster->is_object()) {
    refuse("'s cluster is " + show(*cluster) + R"(, but must be an object, as {"worker": ["a:5000", "b:5000"]})");
  }
  if (cluster->empty()) return spec;

  const Jobs jobs = read_jobs(*cluster);
  const std::pair<std::string, int> own = read_own_task(document, jobs);
  for (const TaskType type : {TaskType::chief, TaskType::master, TaskType::worker}) {
    const auto job = jobs.find(to_string(type));
    if (job == jobs.end()) continue;
    for (const auto& [index, address] : job->second) {
      if (own == std::pair(job->first, index)) spec.rank = spec.tasks.size();
      spec.tasks.push_back({type, index, address});
    }
  }
  warn_of_idle_tasks(jobs, spec.warnings);
  return spec;
}

ClusterSpec cluster_of(const Environment& environment) { return parse_tf_config(value_of(environment, "TF_CONFIG")); }

}  // namespace lockstep
