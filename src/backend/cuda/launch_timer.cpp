// See launch_timer.hpp.
#include "backend/cuda/launch_timer.hpp"

#include "core/environment.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <limits>

namespace lockstep::cuda {

namespace {

constexpr double max_launches = 20;
constexpr int repetitions = 3;
constexpr double milliseconds_of_graph = 10;  // long work needs fewer launches
constexpr double hopeless = 4;                // times the best so far
constexpr double launch_milliseconds = 0.1;   // a generous bound of the host's time for the launches of one run

}  // namespace

void LaunchTimer::run(const Enqueue& enqueue) const {
  enqueue();
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

double LaunchTimer::milliseconds(const Enqueue& enqueue, double to_beat) const {
  constexpr double never = std::numeric_limits<double>::infinity();
  const double once = measure(enqueue);
  if (once > hopeless * to_beat + launch_milliseconds) return never;
  const int launches = static_cast<int>(std::clamp(milliseconds_of_graph / std::max(once, 1e-3), 1.0, max_launches));
  const auto launch_all = [&] {
    for (int i = 0; i < launches; ++i) enqueue();
  };
  const bool captures = value_of(current_environment(), "LOCKSTEP_CUDA_GRAPHS") != "0";
  const GraphExec graph = captures ? capture(launch_all) : nullptr;
  if (captures && !graph) return never;
  const auto launch = [&] {
    if (!graph) return launch_all();
    check(cudaGraphLaunch(graph.get(), stream_), "cudaGraphLaunch");
  };
  run(launch);
  double best = never;
  for (int repetition = 0; repetition < repetitions; ++repetition) best = std::min(best, measure(launch) / launches);
  return best;
}

double LaunchTimer::measure(const Enqueue& enqueue) const {
  check(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
  enqueue();
  check(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
  check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
  return milliseconds;
}

GraphExec LaunchTimer::capture(const Enqueue& enqueue) const {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  bool enqueued = true;
  try {
    enqueue();
  } catch (const Error&) {
    enqueued = false;
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  const CapturedGraph captured(graph);
  cudaGraphExec_t executable = nullptr;
  if (enqueued && ended == cudaSuccess && cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess)
    return GraphExec(executable);
  (void)cudaGetLastError();  // the stream works on
  return nullptr;
}

}  // namespace lockstep::cuda
