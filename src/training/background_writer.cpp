// See background_writer.hpp.
#include "training/background_writer.hpp"

#include <chrono>
#include <utility>

namespace lockstep {

BackgroundWriter::~BackgroundWriter() {
  if (job_.valid()) job_.wait();
}

bool BackgroundWriter::busy() const {
  return job_.valid() && job_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void BackgroundWriter::start(std::function<void()> job) {
  wait();
  job_ = std::async(std::launch::async, std::move(job));
}

void BackgroundWriter::wait() {
  if (job_.valid()) std::exchange(job_, {}).get();
}

}  // namespace lockstep
