// See graph_capture.hpp.
#include "backend/cuda/graph_capture.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace lockstep::cuda {

StepShape StepShape::of(const StepContext& context, bool capturable) {
  StepShape shape{.gradient_scale = context.gradient_scale,
                  .num_examples = context.examples.size(),
                  .replicas = {},
                  .input_kind = context.data.input(0).index(),
                  .target_kind = context.data.target(0).index(),
                  .training = context.training,
                  .capturable = capturable};
  for (const Range& replica : context.replicas) shape.replicas.emplace_back(replica.begin, replica.end);
  return shape;
}

bool GraphCapture::try_replay(const StepShape& shape) {
  Entry& entry = entry_of(shape);
  if (entry.graph) {
    check(cudaGraphLaunch(entry.graph.get(), stream_), "cudaGraphLaunch");
    return true;
  }
  if (shape.capturable && entry.eager_runs++ > 0) {
    // Thread-local mode, because NCCL's threads allocate memory during capture.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    capturing_ = &entry;
  }
  return false;
}

std::string GraphCapture::end_capture() {
  const auto reason = [](const char* call, cudaError_t status) {
    (void)cudaGetLastError();  // the step runs without it
    return fmt::format("{} failed: {}, {}", call, cudaGetErrorName(status), cudaGetErrorString(status));
  };
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  const CapturedGraph captured(graph);
  if (ended != cudaSuccess) return reason("cudaStreamEndCapture", ended);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t instantiated = cudaGraphInstantiate(&executable, graph, 0);
  capturing_->graph.reset(executable);
  return instantiated == cudaSuccess ? "" : reason("cudaGraphInstantiate", instantiated);
}

void GraphCapture::launch() {
  const Entry& entry = *std::exchange(capturing_, nullptr);
  check(cudaGraphLaunch(entry.graph.get(), stream_), "cudaGraphLaunch");
}

void GraphCapture::forget() { std::exchange(capturing_, nullptr)->graph.reset(); }

GraphCapture::Entry& GraphCapture::entry_of(const StepShape& shape) {
  for (Entry& entry : entries_) {
    if (entry.shape == shape) return entry;
  }
  return entries_.emplace_back(Entry{shape, 0, {}});
}

}  // namespace lockstep::cuda
