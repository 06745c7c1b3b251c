// The cluster that TF_CONFIG describes: its training tasks in rank order, its parameter servers, and which of them this
// process is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cluster/net/address.hpp"
#include "core/digest.hpp"

namespace lockstep {

/// Types of tasks that train or hold variables. TensorFlow 1 called the chief `master`.
enum class TaskType { chief, master, worker, ps };

[[nodiscard]] std::string to_string(TaskType type);

struct Task {
  TaskType type = TaskType::worker;
  int index = 0;  ///< within its type; indices may have gaps
  Address address;

  /// "worker 1".
  [[nodiscard]] std::string name() const;

  friend bool operator==(const Task&, const Task&) = default;
};

/// Invariants: addresses are distinct, and every task of `tasks` but the first is a worker.
struct ClusterSpec {
  std::vector<Task> tasks;                 ///< the chief first; empty if this process trains alone
  std::optional<std::size_t> rank;         ///< index of this process in `tasks`; nullopt if it is not one of them
  std::vector<Task> servers = {};          ///< the parameter servers; empty unless the job trains with them
  std::optional<std::size_t> server = {};  ///< index of this process in `servers`
  std::vector<std::string> warnings;       ///< about harmless mistakes in TF_CONFIG

  /// The chief is rank 0: the task of type chief or master, or else the first worker.
  [[nodiscard]] bool is_chief() const noexcept { return !server && rank.value_or(0) == 0; }

  /// Whether the chief is a task of type chief, beside workers.
  [[nodiscard]] bool has_chief_task() const noexcept {
    return tasks.size() > 1 && tasks.front().type == TaskType::chief;
  }

  /// At least 1.
  [[nodiscard]] std::size_t workers() const noexcept { return tasks.empty() ? 1 : tasks.size(); }

  /// This process' task. Throws InternalError if it is none.
  [[nodiscard]] const Task& own_task() const;

  /// Whether the tasks have addresses on more than one host, as far as their names show.
  [[nodiscard]] bool spans_hosts() const;

  /// A digest of what all peers must agree on: the ordered tasks, but not which of them this process is.
  [[nodiscard]] Digest digest() const;

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

/// The address in lower case, because host names are case-insensitive.
[[nodiscard]] std::string normalized_address(const Address& address);

}  // namespace lockstep
