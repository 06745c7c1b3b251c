// The tasks that a description of a cluster lists, while it is read. The rules are those of TensorFlow's
// TFConfigClusterResolver and multi_worker_util. In addition, addresses must be distinct, and gaps in the indices are
// closed. `evaluator` tasks may be listed but do not take part, and `ps` tasks only in jobs with parameter servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/config/cluster_spec.hpp"
#include "cluster/net/address.hpp"

namespace lockstep {

/// The addresses of the tasks of one type, by index. (TensorFlow calls them a job.)
using Job = std::map<int, Address>;

/// A task's type and its index within the type.
using TaskName = std::pair<std::string, int>;

/// Whether `ps` tasks take part in the job, as they do with --strategy parameter-server.
enum class ParameterServers { ignored, take_part };

class TaskTable {
 public:
  /// Messages begin with `source`, such as "TF_CONFIG".
  explicit TaskTable(std::string source) : source_(std::move(source)) {}

  [[nodiscard]] const std::string& source() const noexcept { return source_; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// Whether tasks have such a type: "worker".
  [[nodiscard]] static bool is_type(const std::string& type);

  /// Throws UsageError if there is no such type.
  void add_type(const std::string& type);

  /// `text` is the address. `where` names the entry in messages: "cluster.worker[1]". Throws UsageError if the type has
  /// the index already, if another task has the address, or if there are too many tasks.
  void add(const std::string& type, int index, std::string_view text, const std::string& where);

  /// Throws UsageError if there are more tasks than a table holds.
  void require_room_for(std::size_t tasks, const std::string& where) const;

  /// The task whose host name is that of the pod: the first label of the host, which a random suffix may follow. Throws
  /// UsageError if two tasks have it.
  [[nodiscard]] std::optional<TaskName> task_of_pod(std::string_view pod) const;

  /// The tasks that train, in rank order, and the parameter servers if the job has them. Throws UsageError if they
  /// contradict each other or if `own` does not take part.
  [[nodiscard]] ClusterSpec spec(const TaskName& own, std::vector<std::string> warnings,
                                 ParameterServers servers = ParameterServers::ignored) const;

 private:
  [[noreturn]] void refuse(const std::string& what) const;
  void require_one_chief() const;
  void require_own(const TaskName& own, ParameterServers servers) const;

  std::string source_;
  std::size_t size_ = 0;
  std::map<std::string, Job> jobs_;
  std::map<std::string, std::string> owners_;  ///< names of tasks, by address
};

/// Throws UsageError, whose message begins with `where`, unless `index` can be a task's.
[[nodiscard]] int check_task_index(std::optional<std::int64_t> index, const std::string& where,
                                   const std::string& shown);

}  // namespace lockstep
