// See task_options.hpp.
#include "cluster/config/task_options.hpp"

#include "cluster/config/task_table.hpp"
#include "cluster/config/tf_config.hpp"
#include "cluster/net/quote.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::array<std::string_view, 5> names{"job_name", "task_index", "ps_hosts", "worker_hosts", "master_hosts"};

using Values = std::map<std::string, std::string>;

/// Moves these options' values from the command line, up to "--", which ends a launcher's own options.
Values take(std::vector<std::string>& args) {
  Values values;
  std::vector<std::string> others;
  std::size_t i = 0;
  for (; i < args.size() && args[i] != "--"; ++i) {
    const std::string_view word = args[i];
    const std::size_t equals = word.find('=');
    const auto* const name = std::ranges::find_if(
        names, [&](std::string_view it) { return word.starts_with("--") && word.substr(0, equals).substr(2) == it; });
    if (name == names.end()) {
      others.push_back(args[i]);
      continue;
    }
    if (equals == std::string_view::npos && i + 1 == args.size())
      throw UsageError(fmt::format("--{} needs a value", *name));
    std::string value = equals == std::string_view::npos ? args[++i] : args[i].substr(equals + 1);
    if (!values.emplace(*name, std::move(value)).second) throw UsageError(fmt::format("--{} is given twice", *name));
  }
  others.insert(others.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
  args = std::move(others);
  return values;
}

void add_hosts(TaskTable& table, const std::string& type, const std::string& list) {
  table.add_type(type);
  int index = 0;
  for (std::size_t begin = 0; begin < list.size(); ++index) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    table.add(type, index, std::string_view(list).substr(begin, end - begin), fmt::format("{}_hosts[{}]", type, index));
    begin = end + 1;
  }
}

}  // namespace

std::vector<std::string> take_task_options(std::vector<std::string>& args, Environment& environment) {
  Values values = take(args);
  std::erase_if(values, [](const auto& it) { return it.second.empty(); });  // templates leave empty ones
  if (values.empty()) return {};
  for (const char* variable : {"TF_CONFIG", "CLUSTER_CONFIG"}) {
    if (value_of(environment, variable).empty()) continue;
    throw UsageError(fmt::format("{} is set and --{} is given, but both describe the cluster; leave one of them out",
                                 variable, values.begin()->first));
  }
  for (const char* name : {"job_name", "task_index", "worker_hosts"}) {
    if (values.contains(name)) continue;
    throw UsageError(fmt::format(
        "--{} is given without --{}; this process needs --job_name and --task_index, and all need --worker_hosts",
        values.begin()->first, name));
  }
  TaskTable table("the command line");
  for (const char* type : {"ps", "worker", "master"}) add_hosts(table, type, values[std::string(type) + "_hosts"]);
  const int index =
      check_task_index(parse_number<std::int64_t>(values["task_index"]), "--task_index", quote(values["task_index"]));
  // Whoever reads TF_CONFIG knows the strategy, and says so if servers take no part.
  const ParameterServers servers = values["ps_hosts"].empty() ? ParameterServers::ignored : ParameterServers::take_part;
  const ClusterSpec spec = table.spec({values["job_name"], index}, {}, servers);
  environment["TF_CONFIG"] = to_tf_config(spec);
  return spec.warnings;
}

}  // namespace lockstep
