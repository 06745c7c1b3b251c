// The fake device: its memory, and streams whose work runs only when the host synchronizes. All fake libraries enqueue
// work here. One lock guards the device and is held while it runs.
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

namespace fake_gpu {

/// done: the work is complete; moved: it made progress; stuck: it waits for an event or for other ranks.
enum class Outcome { done, moved, stuck };

/// An item of a stream, called repeatedly until it is done.
using Work = std::function<Outcome()>;

/// Creates an item of work. A graph calls it once per launch.
using MakeWork = std::function<Work()>;

/// A captured item of work. It runs after the nodes that it names.
struct Node {
  MakeWork make;
  std::vector<std::size_t> after;
};

struct Capture;

/// The state of an event, shared with the work that records it.
struct EventState {
  std::uint64_t recorded = 0;  ///< number of records enqueued
  std::uint64_t passed = 0;    ///< number of records that the device has run
  double passed_at = 0;
  bool timed = false;
  std::shared_ptr<Capture> capture;  ///< the capture of the last record, or null
  std::vector<std::size_t> nodes;    ///< the capture's nodes that the record depends on
};

/// Whether LOCKSTEP_FAKE_GPU_LIBRARIES is "minimal": libraries lack optional features, and Lockstep uses its own
/// kernels.
[[nodiscard]] bool minimal();

[[nodiscard]] std::string variable(const char* name, const char* otherwise);

class Device {
 public:
  [[nodiscard]] static Device& get();

  [[nodiscard]] std::recursive_mutex& lock() noexcept { return lock_; }
  [[nodiscard]] Memory& memory() noexcept { return memory_; }
  [[nodiscard]] lockstep::RandomStream& random() noexcept { return random_; }

  [[nodiscard]] cudaStream_t add_stream();
  void remove_stream(cudaStream_t stream);

  /// Enqueues work on a stream, or adds it to the stream's capture.
  cudaError_t enqueue(cudaStream_t stream, const MakeWork& make);

  /// The same for work that completes in one call.
  cudaError_t enqueue_call(cudaStream_t stream, std::function<void()> call);

  /// Runs up to a few items of work.
  void advance(std::uint32_t max_items);

  /// Runs until `met` returns true. Ends the program if that cannot happen.
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
  cudaStream_t current_ = nullptr;                     ///< the stream that ran last
};

/// Holds the device's lock.
struct Locked : std::lock_guard<std::recursive_mutex> {
  Locked() : std::lock_guard<std::recursive_mutex>(Device::get().lock()) {}
};

/// In capture.cpp. Called by functions that are illegal during capture: if this thread has an open capture, invalidates
/// it and returns an error.
[[nodiscard]] cudaError_t refuse_in_capture();
[[nodiscard]] cudaError_t add_to_capture(cudaStream_t stream, const MakeWork& make);
[[nodiscard]] cudaError_t wait_in_capture(cudaStream_t stream, const EventState& event);

/// A capture in progress.
struct Capture {
  cudaStream_t origin = nullptr;
  std::uint64_t thread = 0;
  bool invalid = false;
  std::set<cudaStream_t> streams;
  std::vector<Node> nodes;
};

}  // namespace fake_gpu

struct CUstream_st {
  std::deque<fake_gpu::Work> queue;
  std::shared_ptr<fake_gpu::Capture> capture;
  std::vector<std::size_t> nodes;  ///< the capture's nodes that the next node depends on
};

struct CUevent_st {
  std::shared_ptr<fake_gpu::EventState> state = std::make_shared<fake_gpu::EventState>();
};
