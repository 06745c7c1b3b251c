// Steps as recordings. The first step of a shape runs call by call, which makes its kernels and lets the libraries load
// what they need; the second is recorded while it is enqueued; from then on the device replays it in one launch.
//
// A step's shape is what its kernels and pointers depend on. It holds the global batch as well as this rank's rows, so
// that all ranks record, and replay, the same steps: NCCL demands it.
#pragma once

#include "backend/backend.hpp"
#include "core/cuda/memory.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::cuda {

struct StepShape {
  double gradient_scale = 0;  ///< 1 / global batch
  std::size_t rows = 0;
  std::vector<std::pair<std::size_t, std::size_t>> replicas;
  std::size_t input_kind = 0;
  std::size_t target_kind = 0;
  bool recordable = false;

  [[nodiscard]] static StepShape of(const StepContext& context, bool recordable);
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

class Recorder {
 public:
  explicit Recorder(cudaStream_t stream) : stream_(stream) {}

  /// True if a recording of the step was launched. Else the caller enqueues the step and then calls `end`.
  [[nodiscard]] bool begin(const StepShape& shape);

  /// Launches what was recorded since `begin`, if anything was.
  void end();

 private:
  struct Entry {
    StepShape shape;
    int runs = 0;
    ReplayableRecording recording;
  };

  [[nodiscard]] Entry& entry_of(const StepShape& shape);

  cudaStream_t stream_;
  std::vector<Entry> entries_;
  Entry* recorded_ = nullptr;  ///< being recorded
};

}  // namespace lockstep::cuda
