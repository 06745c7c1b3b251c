// Who shall be in the world: the tasks of a TF_CONFIG in the order of their ranks, and which of them this process is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cluster/address.hpp"
#include "core/digest.hpp"

namespace lockstep {

/// Those that train. `master` is what TensorFlow 1 called the chief.
enum class TaskType { chief, master, worker };

[[nodiscard]] std::string to_string(TaskType type);

struct Task {
  TaskType type = TaskType::worker;
  int index = 0;  ///< among those of its type; there may be gaps
  Address address;

  /// "worker 1".
  [[nodiscard]] std::string name() const;

  friend bool operator==(const Task&, const Task&) = default;
};

/// A plain value. Its tasks have different addresses, and at most the first of them is no worker.
struct ClusterSpec {
  std::vector<Task> tasks;            ///< the chief first; none where this process trains by itself
  std::optional<std::size_t> rank;    ///< this process' place in `tasks`; nothing only where there are none
  std::vector<std::string> warnings;  ///< what was odd about the description and did no harm

  /// The chief is rank 0, whatever its type: of workers alone it is the first.
  [[nodiscard]] bool is_chief() const noexcept { return rank.value_or(0) == 0; }

  /// At least 1.
  [[nodiscard]] std::size_t workers() const noexcept { return tasks.empty() ? 1 : tasks.size(); }

  /// Of what all peers must share: the tasks in their order, but not which of them a process is.
  [[nodiscard]] Digest digest() const;

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

/// Equal for addresses that cannot but mean the same: names of hosts know no upper case.
[[nodiscard]] std::string key_of(const Address& address);

}  // namespace lockstep
