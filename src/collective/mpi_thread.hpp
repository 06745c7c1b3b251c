// A thread that serves one task after the other. MPI is initialized for calls of one thread (MPI_THREAD_FUNNELED), so a
// program whose own threads come and go gives all MPI calls to one of these.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

namespace lockstep {

class MpiThread {
 public:
  /// `while_caller_waits` is called about ten times a second on the thread of a waiting caller. It may throw.
  explicit MpiThread(std::function<void()> while_caller_waits = {});
  /// Lets a task that is running go on, unattended: it may wait for a rank that never comes.
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  /// Runs a task after all earlier ones, and waits. Rethrows its exception. After the exception of any task, or of
  /// `while_caller_waits`, no other task runs: this throws the same error.
  void run(std::function<void()> task);
  /// The same without waiting. The next run() throws the task's exception.
  void post(std::function<void()> task);
  /// Runs a task even after an error, and waits for it for at most `seconds`; returns whether it ended in time.
  bool run_within(double seconds, std::function<void()> task) noexcept;

  /// Waits for all tasks and ends the thread.
  void stop();

 private:
  struct State;
  static void serve(State& state);
  [[nodiscard]] std::future<void> enqueue(std::function<void()> task, bool even_after_error);

  std::function<void()> while_caller_waits_;
  std::shared_ptr<State> state_;  ///< shared with the thread, which may outlive this
};

}  // namespace lockstep
