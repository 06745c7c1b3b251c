// The connections between the tasks of a parameter-server job, as frames after a handshake. Every worker is connected
// to every server, and server 0 to the other servers. Servers listen at their addresses of TF_CONFIG; a port that
// listens receives junk, and no junk ends a server.
//
// Tasks are numbered: the workers by rank, then the servers. A job begins when all its tasks are connected. From then
// on a lost connection is a lost task, unless that task has said goodbye.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/config/cluster_spec.hpp"
#include "cluster/config/job_token.hpp"
#include "cluster/net/connection.hpp"
#include "cluster/net/frame.hpp"
#include "cluster/rendezvous/handshake.hpp"
#include "cluster/rendezvous/peer_listener.hpp"
#include "core/deadline.hpp"

#include <lockstep/core/error.hpp>

namespace lockstep {

/// The end of a task's part in the job, in place of a lost connection.
struct TaskGoodbye {
  int code = 0;         ///< the exit code
  std::string message;  ///< why, if the code is not 0
};

/// The other tasks did not come within TaskLinkOptions::rendezvous_timeout.
class TasksNeverCameError : public PeerError {
 public:
  using PeerError::PeerError;
};

struct TaskLinkOptions {
  JobToken token;
  std::string job = {};             ///< --job-name
  double rendezvous_timeout = 600;  ///< seconds for all tasks to connect
  double report_interval = 10;      ///< seconds between log lines about missing tasks
  double handshake_timeout = 5;
  /// Called repeatedly while this task waits for others at the start.
  std::function<void()> while_waiting = {};
};

/// What a server does about tasks that may come back: their loss is no error, and frames to them are dropped meanwhile.
/// The functions are called within those of TaskLinks.
struct TaskReturns {
  std::function<bool(std::size_t task)> may_return;
  std::function<void(std::size_t task, const std::string& why)> on_lost;
  std::function<void(std::size_t task)> on_returned;  ///< its successor is connected
};

class TaskLinks {
 public:
  /// Waits until all tasks are connected. Throws TasksNeverCameError, which names the missing ones, and UsageError if a
  /// server refuses this task.
  TaskLinks(const ClusterSpec& cluster, const TaskLinkOptions& options);
  TaskLinks(const TaskLinks&) = delete;
  TaskLinks& operator=(const TaskLinks&) = delete;
  ~TaskLinks();

  [[nodiscard]] std::size_t workers() const noexcept { return cluster_.tasks.size(); }
  [[nodiscard]] std::size_t servers() const noexcept { return cluster_.servers.size(); }
  [[nodiscard]] std::size_t own_task() const noexcept { return own_; }
  [[nodiscard]] bool is_server() const noexcept { return own_ >= workers(); }
  [[nodiscard]] bool has_chief_task() const noexcept { return cluster_.has_chief_task(); }
  [[nodiscard]] std::size_t task_of_server(std::size_t server) const noexcept { return workers() + server; }
  /// "worker 1".
  [[nodiscard]] std::string short_name_of(std::size_t index) const { return task(index).name(); }
  /// "worker 1 (10.0.0.7:5000)".
  [[nodiscard]] std::string name_of(std::size_t index) const;

  /// Sends a frame, or queues it. Waits only if so much is queued that memory would grow without a limit. Throws
  /// PeerError if the task is lost. The `borrowed` bytes follow, and must not change until they are sent.
  void send(std::size_t other, const Frame& frame) { send(other, encode_shared(frame)); }
  void send(std::size_t other, const SharedBytes& bytes, std::vector<std::span<const std::byte>> borrowed = {});

  /// Sends and receives what is possible, and passes each frame to the handler. Waits up to `timeout_ms` for the first
  /// event. Throws PeerError for a lost task. The handler may send. `placer_of`, if any, places the bodies of a task.
  using Handler = std::function<void(std::size_t task, Frame&& frame)>;
  using PlacerOf = std::function<Placer(std::size_t task)>;
  void poll(int timeout_ms, const Handler& handler, const PlacerOf& placer_of = {});

  /// From now on no connection reads borrowed bytes or writes to places: their memory may go.
  void detach();

  /// How a task has ended; none: it has not.
  [[nodiscard]] const std::optional<TaskGoodbye>& goodbye_of(std::size_t task) const { return links_.at(task).goodbye; }

  /// From now on tasks may be lost and come back. Without it, a loss is an error.
  void set_returns(TaskReturns returns) { returns_ = std::move(returns); }

  /// Whether this task is the successor of one that was lost: server 0 had begun before.
  [[nodiscard]] bool has_returned() const { return links_[task_of_server(0)].has_begun; }

  /// Whether a task is the successor of a lost one.
  [[nodiscard]] bool has_returned(std::size_t task) const { return links_.at(task).has_returned; }

  [[nodiscard]] bool is_connected(std::size_t task) const { return links_.at(task).connection != nullptr; }

  /// From now on all tasks may end: a lost connection is none that is missed. A task that connects, the successor of
  /// one that was lost at the end, gets this frame.
  void set_over(const Frame& frame) {
    is_over_ = true;
    over_ = encode_shared(frame);
  }

  /// Tells all connected tasks how this one ends, and waits a moment until they can read it. Losses are no errors any
  /// more.
  void say_goodbye(const TaskGoodbye& goodbye) noexcept;

 private:
  struct Link {
    std::unique_ptr<Connection> connection;  ///< null: not connected
    bool is_ready = false;                   ///< the task has told that it is connected to all others
    bool has_begun = false;                  ///< it told so after it had begun
    bool is_lost = false;                    ///< and awaited
    bool has_returned = false;               ///< it is the successor of one that was lost
    std::string problem;                     ///< why it is not connected
    Deadline retry_at = Deadline::after(0);
    double retry_delay = 0;
    std::optional<TaskGoodbye> goodbye;
  };

  /// Whether this task connects to that one, or accepts its connection.
  [[nodiscard]] bool connects_to(std::size_t other) const noexcept;
  [[nodiscard]] bool accepts(std::size_t other) const noexcept;
  [[nodiscard]] const Task& task(std::size_t index) const;
  [[nodiscard]] bool may_return(std::size_t other) const { return returns_.may_return && returns_.may_return(other); }

  void connect_all();
  void connect(std::size_t other);
  [[nodiscard]] std::string try_to_connect(std::size_t other);
  [[nodiscard]] std::string authenticate(std::size_t other, Socket socket);
  void listen();
  void join(std::size_t other, Connection connection);
  [[nodiscard]] bool are_all_connected() const;
  [[nodiscard]] std::string describe_missing() const;
  void receive(std::size_t other, const Handler& handler, const PlacerOf& placer_of);
  void take(std::size_t other, Frame&& frame, const Handler& handler);
  void lose(std::size_t other, std::string why);  ///< `why` by value: the connection may own it
  void log_peers();

  ClusterSpec cluster_;
  TaskLinkOptions options_;
  TaskReturns returns_;
  std::size_t own_ = 0;
  std::vector<Credentials> credentials_;  ///< by server: what it and its peers must agree on
  std::vector<Link> links_;               ///< by task
  std::unique_ptr<PeerListener> listener_;
  bool has_begun_ = false;
  bool is_ready_ = false;  ///< this task has told the others that it is connected
  bool is_over_ = false;   ///< tasks may end
  SharedBytes over_;       ///< what tasks are told that connect then
  bool has_said_goodbye_ = false;
  std::vector<std::pair<std::size_t, Frame>> early_frames_;  ///< of tasks that have begun earlier
  std::vector<pollfd> polled_;
  std::vector<std::size_t> polled_tasks_;
};

}  // namespace lockstep
