// Captures steps as CUDA graphs. The first step of a shape runs eagerly, which creates its kernels and lets the
// libraries load their code. The second is captured while it is enqueued. From then on the device replays it in one
// launch.
//
// A step's shape is everything that its kernels and pointers depend on. It includes the global batch size as well as
// this rank's number of examples, so that all ranks capture and replay the same steps, as NCCL requires.
#pragma once

#include "backend/backend.hpp"
#include "core/cuda/memory.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {

struct StepShape {
  double gradient_scale = 0;  ///< 1 / global batch
  std::size_t num_examples = 0;
  std::vector<std::pair<std::size_t, std::size_t>> replicas;
  std::size_t input_kind = 0;
  std::size_t target_kind = 0;
  bool training = false;
  bool capturable = false;

  [[nodiscard]] static StepShape of(const StepContext& context, bool capturable);
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

class GraphCapture {
 public:
  explicit GraphCapture(cudaStream_t stream) : stream_(stream) {}

  /// Returns true if it launched a captured graph of the step. Otherwise the caller enqueues the step. If it is
  /// captured, `end_capture` follows, and `launch` or `forget`.
  [[nodiscard]] bool try_replay(const StepShape& shape);

  [[nodiscard]] bool is_capturing() const noexcept { return capturing_ != nullptr; }

  /// Ends the capture that `try_replay` began. Returns why it failed; empty if it did not.
  [[nodiscard]] std::string end_capture();
  /// Launches the captured step.
  void launch();
  /// Leaves the step to the caller, who enqueues it again.
  void forget();

 private:
  struct Entry {
    StepShape shape;
    int eager_runs = 0;
    GraphExec graph;
  };

  [[nodiscard]] Entry& entry_of(const StepShape& shape);

  cudaStream_t stream_;
  std::vector<Entry> entries_;
  Entry* capturing_ = nullptr;  ///< from the beginning of a capture until `launch` or `forget`
};

}  // namespace lockstep::cuda
