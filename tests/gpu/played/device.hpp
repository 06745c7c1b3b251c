// The played device: streams of work that wait until the host asks, and memory of its own. All the stand-ins enqueue
// here. One lock guards it; whoever runs it holds that.
#pragma once

#include "core/random.hpp"
#include "memory.hpp"

#include "include/cuda_runtime_api.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace played {

/// stuck: it waits for an event or for other ranks, and did nothing.
enum class Outcome { done, moved, stuck };

/// What a stream holds: called again and again until it is done.
using Work = std::function<Outcome()>;

/// Makes the work; a graph does so anew at every launch.
using MakeWork = std::function<Work()>;

/// Work under capture: a node begins after those it names.
struct Node {
  MakeWork make;
  std::vector<std::size_t> after;
};

struct Capture;

/// What an event knows. The work that records it holds it too.
struct EventState {
  std::uint64_t recorded = 0;  ///< how often it was enqueued
  std::uint64_t passed = 0;    ///< which of these the device came to last
  double passed_at = 0;
  bool timed = false;
  std::shared_ptr<Capture> capture;  ///< the last record belongs to it
  std::vector<std::size_t> nodes;    ///< of the capture, at that record
};

/// "generous" or "stingy" libraries: whether they have what Lockstep asks for, or its own kernels must do.
[[nodiscard]] bool stingy();

[[nodiscard]] std::string variable(const char* name, const char* otherwise);

class Device {
 public:
  [[nodiscard]] static Device& get();

  [[nodiscard]] std::recursive_mutex& lock() noexcept { return lock_; }
  [[nodiscard]] Memory& memory() noexcept { return memory_; }
  [[nodiscard]] lockstep::RandomStream& random() noexcept { return random_; }

  [[nodiscard]] cudaStream_t add_stream();
  void remove_stream(cudaStream_t stream);

  /// Puts work on a stream, or into the capture that the stream is in.
  cudaError_t enqueue(cudaStream_t stream, const MakeWork& make);

  /// The same of what is done in one go.
  cudaError_t enqueue_call(cudaStream_t stream, std::function<void()> call);

  /// Runs a few pieces of work, if anything can be run.
  void advance(std::uint32_t most);

  /// Runs until `met`; ends the program where that never comes.
  void run_until(const std::function<bool()>& met, const char* call);

  [[nodiscard]] bool idle(cudaStream_t stream) const;
  [[nodiscard]] bool idle() const;

 private:
  Device();
  Outcome step();

  std::recursive_mutex lock_;
  Memory memory_;
  lockstep::RandomStream random_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;  ///< the first is the default one
  cudaStream_t current_ = nullptr;                     ///< that ran last
};

/// Holds the device's lock.
struct Locked : std::lock_guard<std::recursive_mutex> {
  Locked() : std::lock_guard<std::recursive_mutex>(Device::get().lock()) {}
};

/// capture.cpp: what a stream, or this thread, must not do while a capture is open; it invalidates the capture.
[[nodiscard]] cudaError_t refuse_in_capture();
[[nodiscard]] cudaError_t add_to_capture(cudaStream_t stream, const MakeWork& make);
[[nodiscard]] cudaError_t wait_in_capture(cudaStream_t stream, const EventState& event);

/// A node, or a stream's state, in a capture.
struct Capture {
  cudaStream_t origin = nullptr;
  std::uint64_t thread = 0;
  bool invalid = false;
  std::set<cudaStream_t> streams;
  std::vector<Node> nodes;
};

}  // namespace played

struct CUstream_st {
  std::deque<played::Work> queue;
  std::shared_ptr<played::Capture> capture;
  std::vector<std::size_t> nodes;  ///< of the capture, that the next one comes after
};

struct CUevent_st {
  std::shared_ptr<played::EventState> state = std::make_shared<played::EventState>();
};
