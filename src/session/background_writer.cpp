// See background_writer.hpp.
#include "session/background_writer.hpp"

#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <chrono>
#include <string>
#include <utility>

namespace lockstep {

BackgroundWriter::~BackgroundWriter() {
  if (job_.valid()) job_.wait();
}

bool BackgroundWriter::is_job_running() const {
  return job_.valid() && job_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void BackgroundWriter::wait_for_job() {
  if (job_.valid()) std::exchange(job_, {}).get();
}

void BackgroundWriter::start(std::function<void()> job) {
  wait_for_job();
  job_ = std::async(std::launch::async, [this, job = std::move(job)] {
    try {
      job();
      warned_of_failure_ = false;
    } catch (const IoError& error) {
      if (on_failure_ == CheckpointFailure::stop) throw;
      if (!warned_of_failure_) log_warning(std::string(error.what()) + "; training continues without this checkpoint");
      warned_of_failure_ = true;
    }
  });
}

void BackgroundWriter::write(Communicator& gathering, std::function<void()> job) {
  finish_gather();
  pending_gather_ = &gathering;
  pending_job_ = std::move(job);
  poll();
}

void BackgroundWriter::poll() {
  if (pending_gather_ == nullptr || !pending_gather_->is_gathered()) return;
  pending_gather_ = nullptr;
  if (auto job = std::exchange(pending_job_, {})) start(std::move(job));
}

void BackgroundWriter::rethrow_error() {
  if (!is_job_running()) wait_for_job();
}

void BackgroundWriter::finish_gather() {
  if (pending_gather_ == nullptr) return;
  report_busy_();
  pending_gather_->finish_gather();
  poll();
}

void BackgroundWriter::wait() {
  finish_gather();
  if (is_job_running()) report_busy_();
  wait_for_job();
}

void BackgroundWriter::cancel_gather() noexcept {
  if (pending_gather_ == nullptr) return;
  std::exchange(pending_gather_, nullptr)->cancel_gather();
  pending_job_ = {};
}

}  // namespace lockstep
