// See graph_capture.hpp.
#include "backend/cuda/graph_capture.hpp"

#include <string>

namespace lockstep::cuda {

StepShape StepShape::of(const StepContext& context, bool capturable) {
  StepShape shape{.gradient_scale = context.gradient_scale,
                  .num_examples = context.examples.size(),
                  .replicas = {},
                  .input_kind = context.data.input(0).index(),
                  .target_kind = context.data.target(0).index(),
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

void GraphCapture::end_capture() {
  if (capturing_ == nullptr) return;
  Entry& entry = *capturing_;
  capturing_ = nullptr;
  cudaGraph_t graph = nullptr;
  if (const cudaError_t status = cudaStreamEndCapture(stream_, &graph); status != cudaSuccess) {
    fail("cudaStreamEndCapture", std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status) +
                                     "; set LOCKSTEP_CUDA_GRAPHS=0 to disable capture");
  }
  const CapturedGraph captured(graph);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  entry.graph.reset(executable);
  check(cudaGraphLaunch(executable, stream_), "cudaGraphLaunch");
}

GraphCapture::Entry& GraphCapture::entry_of(const StepShape& shape) {
  for (Entry& entry : entries_) {
    if (entry.shape == shape) return entry;
  }
  return entries_.emplace_back(Entry{shape, 0, {}});
}

}  // namespace lockstep::cuda
