// See prediction_queue.hpp.
#include "serve/prediction_queue.hpp"

#include <chrono>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

bool PredictionQueue::submit(WaitingRequest request) {
  {
    const std::lock_guard guard(mutex_);
    if (is_stopped_ || (examples_ > 0 && examples_ + request.request.examples > max_examples_)) return false;
    const std::size_t examples = request.request.examples;
    waiting_.push_back(std::move(request));
    examples_ += examples;  // not if the line before has thrown
  }
  changed_.notify_one();
  return true;
}

std::vector<WaitingRequest> PredictionQueue::take(std::size_t max_examples, std::chrono::microseconds delay,
                                                  std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return is_stopped_ || !waiting_.empty(); });
  if (delay.count() > 0 && !waiting_.empty())
    changed_.wait_for(lock, delay, [&] { return is_stopped_ || examples_ >= max_examples; });
  std::vector<WaitingRequest> taken;
  std::size_t examples = 0;
  while (!waiting_.empty() && (taken.empty() || examples + waiting_.front().request.examples <= max_examples)) {
    examples += waiting_.front().request.examples;
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  examples_ -= examples;
  return taken;
}

void PredictionQueue::stop() {
  {
    const std::lock_guard guard(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
}

bool PredictionQueue::is_stopped() const {
  const std::lock_guard guard(mutex_);
  return is_stopped_;
}

std::size_t PredictionQueue::size() const {
  const std::lock_guard guard(mutex_);
  return examples_;
}

}  // namespace lockstep
