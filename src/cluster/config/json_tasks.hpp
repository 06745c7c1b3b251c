// Reads tasks from the JSON of environment variables.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cluster/config/task_table.hpp"

namespace lockstep {

/// Adds the tasks of one type: a list of addresses, or an object of addresses by index. `where` names the value in
/// messages: "cluster.worker". Throws UsageError.
void read_tasks(TaskTable& table, const std::string& type, const nlohmann::json& value, const std::string& where);

/// An index as Python's int() reads it. Throws UsageError, whose message begins with `where`.
[[nodiscard]] int read_task_index(const nlohmann::json& value, const std::string& where);

}  // namespace lockstep
