// See mpi_thread.hpp.
#include "collective/mpi_thread.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep {

namespace {

constexpr auto poll_interval = std::chrono::milliseconds(100);

struct QueuedTask {
  std::function<void()> work;
  bool even_after_error = false;
  std::promise<void> done = {};
};

}  // namespace

struct MpiThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<QueuedTask> queue;  ///< guarded by mutex
  bool is_stopping = false;      ///< guarded by mutex
  std::exception_ptr error;      ///< guarded by mutex: the first error of any task
  std::thread thread;
};

MpiThread::MpiThread(std::function<void()> while_caller_waits)
    : while_caller_waits_(std::move(while_caller_waits)), state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_] { serve(*state); });
}

MpiThread::~MpiThread() {
  if (!state_->thread.joinable()) return;
  const std::lock_guard lock(state_->mutex);
  state_->is_stopping = true;
  state_->changed.notify_all();
  state_->thread.detach();
}

void MpiThread::serve(State& state) {
  while (true) {
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.is_stopping || !state.queue.empty(); });
    if (state.queue.empty()) return;
    QueuedTask task = std::move(state.queue.front());
    state.queue.pop_front();
    if (state.error && !task.even_after_error) {
      task.done.set_exception(state.error);
      continue;
    }
    lock.unlock();
    try {
      task.work();
      task.work = nullptr;  // what it captured is gone before the caller goes on
      task.done.set_value();
    } catch (...) {
      task.work = nullptr;
      lock.lock();
      if (!state.error) state.error = std::current_exception();
      lock.unlock();
      task.done.set_exception(std::current_exception());
    }
  }
}

std::future<void> MpiThread::enqueue(std::function<void()> task, bool even_after_error) {
  const std::lock_guard lock(state_->mutex);
  QueuedTask& queued = state_->queue.emplace_back(QueuedTask{std::move(task), even_after_error});
  state_->changed.notify_all();
  return queued.done.get_future();
}

void MpiThread::run(std::function<void()> task) {
  std::future<void> done = enqueue(std::move(task), false);
  try {
    while (done.wait_for(poll_interval) == std::future_status::timeout) {
      if (while_caller_waits_) while_caller_waits_();
    }
  } catch (...) {
    const std::lock_guard lock(state_->mutex);
    if (!state_->error) state_->error = std::current_exception();
    throw;
  }
  done.get();
}

void MpiThread::post(std::function<void()> task) { (void)enqueue(std::move(task), false); }

bool MpiThread::run_within(double seconds, std::function<void()> task) noexcept {
  try {
    const std::future<void> done = enqueue(std::move(task), true);
    return done.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  } catch (...) {  // out of memory
    return false;
  }
}

void MpiThread::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopping = true;
    state_->changed.notify_all();
  }
  state_->thread.join();
}

}  // namespace lockstep
