// All tasks of a parameter-server job, seen from one of them: collectives outside of steps, which go through server 0,
// and the messages of models.
//
// Until the first step, the servers run the same program as the workers and take part in its collectives: all tasks
// compare options, load the same weights and compile the same models. Then the servers begin to serve, and the
// collectives are the workers' alone.
//
// Where updates are asynchronous, a worker other than the first may be lost: the others train on. Its successor runs
// the program from the beginning and *replays* what happened: each collective that the workers have completed returns
// at once what it returned then, and rounds of training (ticket_queue.hpp) are over as soon as they begin. So it comes
// to where the others are in the program, with the same state. They wait for it only where all meet.
//
// Messages are handled while this task waits or makes progress, on the thread that calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/parameter_server/task_links.hpp"
#include "cluster/parameter_server/task_message.hpp"
#include "collective/wait_loop.hpp"
#include "core/stop_request.hpp"

namespace lockstep {

class TaskGroup {
 public:
  /// `policy`: how long a task waits for another. The links must be connected. `workers_may_return`: see above; from
  /// the beginning of the service on.
  TaskGroup(std::shared_ptr<TaskLinks> links, WaitPolicy policy, bool workers_may_return = false);
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  [[nodiscard]] std::size_t workers() const noexcept { return links_->workers(); }
  [[nodiscard]] std::size_t servers() const noexcept { return links_->servers(); }
  [[nodiscard]] bool is_server() const noexcept { return links_->is_server(); }
  [[nodiscard]] bool has_chief_task() const noexcept { return links_->has_chief_task(); }
  /// Among the servers. Only of a server.
  [[nodiscard]] std::size_t own_server() const noexcept { return links_->own_task() - workers(); }
  /// -1 for a server.
  [[nodiscard]] int rank() const noexcept { return is_server() ? -1 : static_cast<int>(links_->own_task()); }
  [[nodiscard]] std::string name_of(std::size_t task) const { return links_->name_of(task); }
  /// "worker 1".
  [[nodiscard]] std::string short_name_of(std::size_t task) const { return links_->short_name_of(task); }
  [[nodiscard]] std::string name_of_server(std::size_t server) const {
    return links_->name_of(links_->task_of_server(server));
  }

  enum class Subgroup { all, workers, servers, end };
  /// Collective among these tasks: returns the bytes of each, in their order. `what` names it in messages: "a barrier".
  [[nodiscard]] std::vector<std::string> exchange(Subgroup subgroup, std::string bytes, const char* what);
  /// The tasks of the program's collectives.
  [[nodiscard]] Subgroup participants() const noexcept { return is_serving_ ? Subgroup::workers : Subgroup::all; }

  /// Collective among all tasks, once: from now on the servers serve.
  void begin_service();
  [[nodiscard]] bool is_serving() const noexcept { return is_serving_; }

  /// On the successor of a lost worker.
  [[nodiscard]] bool has_returned() const { return !is_server() && links_->has_returned(); }
  /// Whether the program's next collective is one that the workers have completed without this worker.
  [[nodiscard]] bool is_replaying() const;

  /// Collective among the workers: the job is over, and all tasks may end.
  void finish();
  /// After finish(). Else a server could hear that this task is gone before it hears of the end.
  void say_goodbye();
  /// On a server: the workers have ended, or the job is over.
  [[nodiscard]] bool is_over() const;
  /// On a server, at the end: waits until each worker knows that the job is over. One that was lost before it could
  /// have a successor, for which there would be nobody.
  void see_workers_off();
  /// On the successor of a lost worker: the job was over before it came.
  [[nodiscard]] bool has_come_too_late() const noexcept { return is_over_; }
  /// The exit code of a job that is over: 0, or 75 if the workers have left.
  [[nodiscard]] int code() const;

  /// Receives the messages of a model. It must live until `remove_model`.
  struct Receiver {
    std::function<void(std::size_t task, const ModelMessage& message)> receive;
    /// Where the data of an expected message belong; nowhere for others, which `receive` refuses. `message` has no
    /// data.
    std::function<Places(std::size_t task, const ModelMessage& message)> place;
    /// A worker that may return is lost. Called again when its successor is there, before its messages.
    std::function<void(std::size_t task)> forget = {};
  };
  /// Numbers the models. Messages that came before are passed to the receiver at once.
  [[nodiscard]] std::uint64_t add_model(Receiver receiver);
  /// From now on nothing reads or writes the model's memory.
  void remove_model(std::uint64_t model);

  void send_to_server(std::size_t server, const Frame& frame) { links_->send(links_->task_of_server(server), frame); }
  void send(std::size_t task, const SharedBytes& bytes, std::vector<std::span<const std::byte>> borrowed = {}) {
    links_->send(task, bytes, std::move(borrowed));
  }

  /// Sends and receives what is possible; never waits.
  void make_progress() { poll(0); }

  /// Waits for messages until `is_done`. `what` describes what is missing: "ps 0 to send its weights". Throws PeerError
  /// after the timeout of the policy.
  void wait(const std::function<bool()>& is_done, const std::function<std::string()>& what);
  /// The same without a timeout, for a server that has nothing to do. Calls `idle` repeatedly.
  void wait_idle(const std::function<bool()>& is_done, const std::function<void()>& idle);
  /// Seconds of all waits since the last call.
  [[nodiscard]] double take_wait() noexcept { return std::exchange(waited_, 0.0); }

  /// On a server: asks all workers to stop, through the first one's metrics. On that worker: what servers have asked.
  void request_stop(StopRequest request);
  [[nodiscard]] StopRequest stop_request() const noexcept { return stop_request_; }

 private:
  /// A collective for which server 0 waits.
  struct Gathering {
    std::vector<std::optional<std::string>> parts;
  };

  [[nodiscard]] std::pair<std::size_t, std::size_t> tasks_of(Subgroup subgroup) const;
  void poll(int timeout_ms);
  void receive(std::size_t task, Frame&& frame);
  [[nodiscard]] Placer placer_of(std::size_t task) const;
  void take_part(std::size_t task, Contribution&& part);
  [[nodiscard]] bool may_return(std::size_t task) const noexcept {
    return workers_may_return_ && is_serving_ && task > 0 && task < workers();
  }
  void forget(std::size_t task, const std::string& why);
  void take_back(std::size_t task);
  void forget_in_models(std::size_t task);
  void set_over();
  /// The first worker that has not said goodbye; the number of workers if all have.
  [[nodiscard]] std::size_t first_present() const;
  void require_no_failure() const;

  std::shared_ptr<TaskLinks> links_;
  WaitPolicy policy_;
  bool is_serving_ = false;
  bool is_over_ = false;
  bool workers_may_return_;
  std::vector<SharedBytes> completed_;  ///< collectives, on server 0 if workers may return
  std::size_t completed_bytes_ = 0;
  bool is_replay_complete_ = false;             ///< server 0 has sent them
  std::array<std::uint64_t, 4> next_number_{};  ///< by group
  std::map<std::pair<std::uint64_t, std::uint64_t>, Gathering> gatherings_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::string>> results_;  ///< for this task
  std::uint64_t next_model_ = 0;
  std::map<std::uint64_t, Receiver> receivers_;
  std::vector<std::pair<std::size_t, ModelMessage>> early_;  ///< of models that this task has not compiled yet
  StopRequest stop_request_ = StopRequest::none;
  double waited_ = 0;
};

}  // namespace lockstep
