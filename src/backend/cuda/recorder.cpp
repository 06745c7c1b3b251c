// See recorder.hpp.
#include "backend/cuda/recorder.hpp"

#include <string>

namespace lockstep::cuda {

StepShape StepShape::of(const StepContext& context, bool recordable) {
  StepShape shape{.gradient_scale = context.gradient_scale,
                  .rows = context.examples.size(),
                  .replicas = {},
                  .input_kind = context.data.inputs.index(),
                  .target_kind = context.data.targets.index(),
                  .recordable = recordable};
  for (const ReplicaRows& rows : context.replicas) shape.replicas.emplace_back(rows.begin, rows.end);
  return shape;
}

bool Recorder::begin(const StepShape& shape) {
  Entry& entry = entry_of(shape);
  if (entry.recording) {
    check(cudaGraphLaunch(entry.recording.get(), stream_), "cudaGraphLaunch");
    return true;
  }
  if (shape.recordable && entry.runs++ > 0) {
    // Of this thread only: NCCL's own threads go on allocating.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    recorded_ = &entry;
  }
  return false;
}

void Recorder::end() {
  if (recorded_ == nullptr) return;
  Entry& entry = *recorded_;
  recorded_ = nullptr;
  cudaGraph_t graph = nullptr;
  if (const cudaError_t status = cudaStreamEndCapture(stream_, &graph); status != cudaSuccess) {
    fail("cudaStreamEndCapture", std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status) +
                                     "; with LOCKSTEP_CUDA_GRAPHS=0 steps are not recorded");
  }
  const Recording recording(graph);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  entry.recording.reset(executable);
  check(cudaGraphLaunch(executable, stream_), "cudaGraphLaunch");
}

Recorder::Entry& Recorder::entry_of(const StepShape& shape) {
  for (Entry& entry : entries_) {
    if (entry.shape == shape) return entry;
  }
  return entries_.emplace_back(Entry{shape, 0, {}});
}

}  // namespace lockstep::cuda
