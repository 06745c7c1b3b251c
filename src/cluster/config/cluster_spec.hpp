// The cluster that TF_CONFIG describes: its training tasks in rank order, and which of them this process is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cluster/net/address.hpp"
#include "core/digest.hpp"

namespace lockstep {

/// Task types that train. TensorFlow 1 called the chief `master`.
enum class TaskType { chief, master, worker };

[[nodiscard]] std::string to_string(TaskType type);

struct Task {
  TaskType type = TaskType::worker;
  int index = 0;  ///< within its type; indices may have gaps
  Address address;

  /// "worker 1".
  [[nodiscard]] std::string name() const;

  friend bool operator==(const Task&, const Task&) = default;
};

/// Invariants: addresses are distinct, and every task but the first is a worker.
struct ClusterSpec {
  std::vector<Task> tasks;            ///< the chief first; empty if this process trains alone
  std::optional<std::size_t> rank;    ///< index of this process in `tasks`; nullopt if `tasks` is empty
  std::vector<std::string> warnings;  ///< about harmless mistakes in TF_CONFIG

  /// The chief is rank 0: the task of type chief or master, or else the first worker.
  [[nodiscard]] bool is_chief() const noexcept { return rank.value_or(0) == 0; }

  /// At least 1.
  [[nodiscard]] std::size_t workers() const noexcept { return tasks.empty() ? 1 : tasks.size(); }

  /// Whether the tasks have addresses on more than one host, as far as their names show.
  [[nodiscard]] bool spans_hosts() const;

  /// A digest of what all peers must agree on: the ordered tasks, but not `rank`.
  [[nodiscard]] Digest digest() const;

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

/// The address in lower case, because host names are case-insensitive.
[[nodiscard]] std::string normalized_address(const Address& address);

}  // namespace lockstep
