// See tf_config.hpp. The rules are those of TensorFlow's TFConfigClusterResolver and multi_worker_util. In addition,
// addresses must be well-formed and distinct, and gaps in the indices are closed. `ps` and `evaluator` tasks may be
// listed but do not take part.
#include "cluster/config/tf_config.hpp"

#include "cluster/config/json_text.hpp"
#include "cluster/net/quote.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using json = nlohmann::json;

constexpr std::size_t max_bytes = std::size_t{1} << 20U;
constexpr std::size_t max_tasks = 100'000;

/// The tasks of one type, by index. (TensorFlow calls them a job.)
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
  refuse(fmt::format(" is not valid JSON at {}; {}", describe_position(text, offset),
                     ends     ? "it ends too early: close the open quote or bracket"
                     : quoted ? "use double quotes"
                              : "check quotes, commas and brackets there"));
}

/// Throws json::parse_error.
json parse_json(const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::out_of_range& error) {  // a number out of range, quoted in what()
    const std::string_view what = error.what();
    const std::size_t number = what.find('\'');
    refuse(fmt::format(" has a number that is too large: {}; use a smaller one",
                       quote(number < what.size() ? what.substr(number + 1) : what)));
  }
}

json read_json(const std::string& text, std::vector<std::string>& warnings) {
  try {
    return parse_json(text);
  } catch (const json::parse_error& error) {
    const std::string repaired = without_trailing_commas(text);
    if (repaired == text) refuse_json(text, error);
    try {
      json document = parse_json(repaired);
      warnings.emplace_back(
          "TF_CONFIG has a comma before a closing bracket, which JSON does not allow; the comma is ignored");
      return document;
    } catch (const json::parse_error& other) {
      refuse_json(text, other);
    }
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Python's int() of a string of ASCII characters, which accepts surrounding whitespace, a sign, leading zeros, and
/// single underscores between digits.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\v\f";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(blanks) + 1 - first);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_separator =
        text[i] == '_' && i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!is_separator) digits += text[i];
  }
  return parse_number<std::int64_t>(digits);
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
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number_float()) return {};
  return static_cast<std::int64_t>(std::clamp(std::trunc(value.get<double>()), -1e18, 1e18));
}

int check_index(std::optional<std::int64_t> index, const std::string& where, const std::string& shown) {
  if (!index || *index < 0 || *index > std::numeric_limits<int>::max()) {
    refuse(fmt::format("{} is {}, but must be a whole number of at least 0", where, shown));
  }
  return static_cast<int>(*index);
}

Job read_job(const std::string& name, const json& value) {
  const std::string where = "'s cluster." + name;
  if (!value.is_array() && !value.is_object()) {
    refuse(fmt::format(R"({} is {}, but must be a list of "host:port")", where, show(value)));
  }
  if (value.size() > max_tasks) {
    refuse(fmt::format("{} lists {} tasks; the limit is {}", where, value.size(), max_tasks));
  }
  Job job;
  for (const auto& item : value.items()) {  // the keys of a list are its indices
    const std::string entry = fmt::format("{}[{}]", where, value.is_array() ? item.key() : quote(item.key()));
    const int index = check_index(parse_integer(item.key()), where + "'s key", quote(item.key()));
    if (!item.value().is_string())
      refuse(fmt::format(R"({} is {}, but must be a "host:port")", entry, show(item.value())));
    Address address = parse_address(item.value().get_ref<const std::string&>(), "TF_CONFIG" + entry);
    if (!job.emplace(index, std::move(address)).second) {
      refuse(fmt::format("{} has index {} twice; give each task its own index", where, index));
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
  refuse(fmt::format(
      "'s cluster.{} lists {} tasks (the second is {}), but there can be only one; list the others as workers", name,
      job->second.size(), quote(std::next(job->second.begin())->second.to_string())));
}

Jobs read_jobs(const json& cluster) {
  Jobs jobs;
  std::map<std::string, std::string> owners;
  std::size_t tasks = 0;
  for (const auto& item : cluster.items()) {
    if (!is_known(item.key())) {
      refuse(fmt::format("'s cluster has tasks of the unknown type {}; use chief and worker", quote(item.key())));
    }
    const Job& job = jobs[item.key()] = read_job(item.key(), item.value());
    tasks += job.size();
    if (tasks > max_tasks) refuse(fmt::format("'s cluster lists more than {} tasks", max_tasks));
    for (const auto& [index, address] : job) {
      const std::string name = fmt::format("{} {}", item.key(), index);
      const auto [owner, first] = owners.emplace(normalized_address(address), name);
      if (!first) {
        refuse(fmt::format("'s cluster gives {} and {} the same address {}; give each task its own", owner->second,
                           name, quote(address.to_string())));
      }
    }
  }
  for (const char* single : {"chief", "master", "evaluator"}) require_at_most_one(jobs, single);
  if (jobs.contains("chief") && jobs.contains("master") && !jobs["chief"].empty() && !jobs["master"].empty()) {
    refuse(fmt::format(
        "'s cluster has both a chief ({}) and a master ({}), which are two names for one task; keep the chief",
        quote(jobs["chief"].begin()->second.to_string()), quote(jobs["master"].begin()->second.to_string())));
  }
  return jobs;
}

std::string describe(const Job& job, const std::string& type) {
  if (job.empty()) return "no " + type;
  if (job.size() == 1) return fmt::format("only {} {}", type, job.begin()->first);
  return fmt::format("{} of them, {} to {}", job.size(), job.begin()->first, job.rbegin()->first);
}

/// The type and index of this process, checked against the cluster.
std::pair<std::string, int> read_own_task(const json& document, const Jobs& jobs) {
  constexpr const char* remedy = R"(; add "task": {"type": "worker", "index": 0} with this process' type and index)";
  const auto task = document.find("task");
  if (task == document.end()) refuse(std::string(" has a cluster but no task") + remedy);
  if (!task->is_object()) refuse("'s task is " + show(*task) + ", but must be an object" + remedy);
  const auto type_value = task->find("type");
  const auto index_value = task->find("index");
  if (type_value == task->end()) refuse(std::string("'s task has no type") + remedy);
  if (index_value == task->end()) refuse(std::string("'s task has no index") + remedy);
  const std::string type = type_value->is_string() ? type_value->get<std::string>() : show(*type_value);
  if (type == "ps" || type == "evaluator") {
    refuse(fmt::format(
        "'s task is of type '{}', which is not supported: only the chief and the workers train; do not start "
        "a program for this task",
        type));
  }
  if (!is_known(type)) refuse(fmt::format("'s task has the unknown type {}; use chief or worker", quote(type)));
  const int index = check_index(to_integer(*index_value), "'s task.index", show(*index_value));
  const auto job = jobs.find(type);
  if (job == jobs.end() || !job->second.contains(index)) {
    refuse(fmt::format("'s task is {} {}, but its cluster lists {}; correct task.index or the cluster", type, index,
                       describe(job == jobs.end() ? Job() : job->second, type)));
  }
  return {type, index};
}

/// A key that looks like the cluster but is another: this process trains alone, and so do all others of the job.
void warn_of_other_cluster(const json& document, std::vector<std::string>& warnings) {
  for (const auto& item : document.items()) {
    std::string lower = item.key();
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower.find("cluster") == std::string::npos) continue;
    warnings.push_back(
        fmt::format("TF_CONFIG has the key {} but no cluster, so this process trains alone; name the key 'cluster' and "
                    "list all tasks",
                    quote(item.key())));
  }
}

void warn_of_idle_tasks(const Jobs& jobs, std::vector<std::string>& warnings) {
  for (const char* type : {"ps", "evaluator"}) {
    const auto job = jobs.find(type);
    if (job == jobs.end() || job->second.empty()) continue;
    warnings.push_back(fmt::format(
        "TF_CONFIG lists tasks of type '{}', which is not supported; they do not take part in training", type));
  }
}

}  // namespace

ClusterSpec parse_tf_config(const std::string& text) {
  ClusterSpec spec;
  if (text.empty()) return spec;
  if (text.size() > max_bytes) {
    refuse(fmt::format(" has {} bytes, more than the limit of {}; it begins with {}", text.size(), max_bytes,
                       quote(text)));
  }
  const json document = read_json(text, spec.warnings);
  if (!document.is_object()) {
    refuse(" is " + show(document) + R"(, but must be an object {"cluster": ..., "task": ...})");
  }
  const auto cluster = document.find("cluster");
  if (cluster == document.end()) {
    warn_of_other_cluster(document, spec.warnings);
    return spec;
  }
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

ClusterSpec read_cluster_spec(const Environment& environment) {
  return parse_tf_config(value_of(environment, "TF_CONFIG"));
}

}  // namespace lockstep
