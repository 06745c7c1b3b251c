// See background_writer.hpp.
#include "session/background_writer.hpp"

#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <system_error>
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

void BackgroundWriter::start(const ModelDirectory& model_directory, std::function<void()> job) {
  wait_for_job();
  const auto write = [this, model_directory, job = std::move(job)] {
    try {
      job();
      warned_of_failure_ = false;
      if (model_directory) model_failures_.erase(*model_directory);
    } catch (const IoError& error) {
      if (on_failure_ == CheckpointFailure::stop) throw;
      if (!warned_of_failure_) log_warning(std::string(error.what()) + "; training continues without this checkpoint");
      warned_of_failure_ = true;
      if (model_directory) model_failures_[*model_directory] = error.what();
    }
  };
  try {
    job_ = std::async(std::launch::async, write);
  } catch (const std::system_error&) {  // no thread can be started: a limit, or no memory
    report_busy_();
    job_ = std::async(std::launch::deferred, write);
    job_.wait();
  }
}

void BackgroundWriter::write(Communicator& gathering, ModelDirectory model_directory, std::function<void()> job) {
  finish_gather();
  pending_gather_ = &gathering;
  pending_job_ = std::move(job);
  model_directory_ = std::move(model_directory);
  poll();
}

void BackgroundWriter::poll() {
  if (pending_gather_ == nullptr || !pending_gather_->is_gathered()) return;
  pending_gather_ = nullptr;
  if (auto job = std::exchange(pending_job_, {})) start(model_directory_, std::move(job));
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

void BackgroundWriter::join() noexcept {
  try {
    finish_gather();
  } catch (...) {
    std::promise<void> failed;
    failed.set_exception(std::current_exception());
    job_ = failed.get_future();
  }
  if (is_job_running()) report_busy_();
  if (job_.valid()) job_.wait();
}

void BackgroundWriter::require_last_models_written() const {
  if (model_failures_.empty()) return;
  throw IoError("the last model is missing: " + model_failures_.begin()->second +
                "; backups are kept, so start the same job again");
}

void BackgroundWriter::cancel_gather() noexcept {
  if (pending_gather_ == nullptr) return;
  std::exchange(pending_gather_, nullptr)->cancel_gather();
  pending_job_ = {};
}

}  // namespace lockstep
