// See device.hpp. Work runs in a random order (LOCKSTEP_FAKE_GPU_SEED) that streams and events allow, and as late as
// possible, so that a missing wait leads to a wrong result.
#include "device.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace fake_gpu {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : otherwise;
}

bool minimal() { return variable("LOCKSTEP_FAKE_GPU_LIBRARIES", "complete") == "minimal"; }

Device& Device::get() {
  static Device device;
  return device;
}

Device::Device()
    : random_(std::strtoull(variable("LOCKSTEP_FAKE_GPU_SEED", "1").c_str(), nullptr, 10),
              lockstep::RandomPurpose::test, 4711) {
  (void)add_stream();
}

cudaStream_t Device::add_stream() { return streams_.emplace_back(std::make_unique<CUstream_st>()).get(); }

void Device::remove_stream(cudaStream_t stream) {
  std::erase_if(streams_, [stream](const auto& each) { return each.get() == stream; });
}

cudaError_t Device::enqueue(cudaStream_t stream, const MakeWork& make) {
  if (stream == nullptr) stream = streams_.front().get();
  if (stream->capture) return add_to_capture(stream, make);
  stream->queue.push_back(make());
  return cudaSuccess;
}

cudaError_t Device::enqueue_call(cudaStream_t stream, std::function<void()> call) {
  return enqueue(stream, [call = std::move(call)]() -> Work {
    return [call] {
      call();
      return Outcome::done;
    };
  });
}

void Device::advance(std::uint32_t max_items) {
  const Unlocked unlocked(memory_);
  for (std::uint32_t i = 0; i < max_items && step() != Outcome::stuck; ++i) {
  }
}

/// Runs one item of work. Mostly continues the current stream, so that streams also run far ahead of each other.
Outcome Device::step() {
  std::vector<CUstream_st*> busy;
  for (const auto& stream : streams_) {
    if (!stream->queue.empty()) busy.push_back(stream.get());
  }
  if (busy.empty()) return Outcome::stuck;
  auto first = std::find(busy.begin(), busy.end(), current_);
  if (first == busy.end() || random_.below(8) == 0) {
    first = busy.begin() + random_.below(static_cast<std::uint32_t>(busy.size()));
  }
  std::rotate(busy.begin(), first, busy.end());
  for (CUstream_st* stream : busy) {
    const Outcome outcome = stream->queue.front()();
    if (outcome == Outcome::stuck) continue;
    current_ = stream;
    if (outcome == Outcome::done) stream->queue.pop_front();
    return outcome;
  }
  return Outcome::stuck;
}

void Device::run_until(const std::function<bool()>& met, const char* call) {
  constexpr auto timeout = std::chrono::seconds(60);
  auto last = std::chrono::steady_clock::now();
  while (!met()) {
    bool moved = false;
    {
      const Unlocked unlocked(memory_);
      while (!met() && step() != Outcome::stuck) moved = true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (moved) {
      last = now;
    } else if (now - last > timeout) {
      std::fprintf(stderr, "fake GPU: %s would wait forever\n", call);
      std::abort();
    } else {
      std::this_thread::yield();
    }
  }
}

bool Device::idle(cudaStream_t stream) const {
  return (stream != nullptr ? stream : streams_.front().get())->queue.empty();
}

bool Device::idle() const {
  for (const auto& stream : streams_) {
    if (!stream->queue.empty()) return false;
  }
  return true;
}

}  // namespace fake_gpu
