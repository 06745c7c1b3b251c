// Captures streams into graphs and launches them, by the rules of the CUDA C++ Programming Guide ("Creating a Graph
// Using Stream Capture", "Cross-stream Dependencies and Events") and of the runtime's reference for
// cudaStreamBeginCapture and cudaThreadExchangeStreamCaptureMode.
#include "device.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

struct CUgraph_st {
  std::vector<fake_gpu::Node> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<fake_gpu::Node>> nodes;
};

namespace fake_gpu {

namespace {

std::uint64_t this_thread() { return std::hash<std::thread::id>{}(std::this_thread::get_id()); }

/// The open capture. This fake supports one at a time.
std::weak_ptr<Capture>& open_capture() {
  static std::weak_ptr<Capture> open;
  return open;
}

/// One launch of a graph. Runs the nodes in a random order that respects their dependencies.
class Replay {
 public:
  explicit Replay(std::shared_ptr<const std::vector<Node>> nodes) : nodes_(std::move(nodes)), waits_(nodes_->size()) {
    for (std::size_t n = 0; n < nodes_->size(); ++n) {
      waits_[n] = (*nodes_)[n].after.size();
      if (waits_[n] == 0) begin(n);
    }
    followers_.resize(nodes_->size());
    for (std::size_t n = 0; n < nodes_->size(); ++n) {
      for (const std::size_t before : (*nodes_)[n].after) followers_[before].push_back(n);
    }
  }

  Outcome step() {
    if (ready_.empty()) return Outcome::done;
    const std::size_t first = Device::get().random().below(static_cast<std::uint32_t>(ready_.size()));
    for (std::size_t tried = 0; tried < ready_.size(); ++tried) {
      const std::size_t at = (first + tried) % ready_.size();
      const Outcome outcome = ready_[at].second();
      if (outcome == Outcome::stuck) continue;
      if (outcome == Outcome::done) finish(at);
      return ready_.empty() ? Outcome::done : Outcome::moved;
    }
    return Outcome::stuck;
  }

 private:
  void begin(std::size_t node) { ready_.emplace_back(node, (*nodes_)[node].make()); }

  void finish(std::size_t at) {
    const std::size_t node = ready_[at].first;
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
    for (const std::size_t follower : followers_[node]) {
      if (--waits_[follower] == 0) begin(follower);
    }
  }

  std::shared_ptr<const std::vector<Node>> nodes_;
  std::vector<std::size_t> waits_;
  std::vector<std::vector<std::size_t>> followers_;
  std::vector<std::pair<std::size_t, Work>> ready_;
};

/// Whether all forks were joined: the origin's stream depends on every node.
bool is_joined(const Capture& capture) {
  std::vector<bool> reached(capture.nodes.size());
  std::vector<std::size_t> left = capture.origin->nodes;
  while (!left.empty()) {
    const std::size_t node = left.back();
    left.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    left.insert(left.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  for (const bool each : reached) {
    if (!each) return false;
  }
  return true;
}

}  // namespace

cudaError_t refuse_in_capture() {
  const auto capture = open_capture().lock();
  if (!capture || capture->thread != this_thread()) return cudaSuccess;
  capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t add_to_capture(cudaStream_t stream, const MakeWork& make) {
  Capture& capture = *stream->capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  capture.nodes.push_back({make, stream->nodes});
  stream->nodes = {capture.nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t wait_in_capture(cudaStream_t stream, const EventState& event) {
  Capture& capture = *event.capture;
  if (!capture.streams.contains(capture.origin)) return cudaErrorCapturedEvent;  // the capture has ended
  if (stream->capture && stream->capture != event.capture) {
    capture.invalid = stream->capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  if (!stream->capture) {
    stream->capture = event.capture;
    capture.streams.insert(stream);
  }
  for (const std::size_t node : event.nodes) {
    if (std::find(stream->nodes.begin(), stream->nodes.end(), node) == stream->nodes.end()) {
      stream->nodes.push_back(node);
    }
  }
  return cudaSuccess;
}

}  // namespace fake_gpu

using fake_gpu::Device;
using fake_gpu::Locked;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  const Locked locked;
  if (stream == nullptr || stream->capture || !fake_gpu::open_capture().expired()) return cudaErrorIllegalState;
  stream->capture = std::make_shared<fake_gpu::Capture>();
  stream->capture->origin = stream;
  stream->capture->thread = fake_gpu::this_thread();
  stream->capture->streams = {stream};
  stream->nodes.clear();
  fake_gpu::open_capture() = stream->capture;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Locked locked;
  *graph = nullptr;
  const auto capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  if (capture->thread != fake_gpu::this_thread()) return cudaErrorStreamCaptureWrongThread;
  const bool joined = fake_gpu::is_joined(*capture);
  for (cudaStream_t each : capture->streams) {
    each->capture = nullptr;
    each->nodes.clear();
  }
  capture->streams.clear();
  fake_gpu::open_capture().reset();
  const bool fails = fake_gpu::variable("LOCKSTEP_FAKE_GPU_CAPTURE", "works") != "works";
  if (capture->invalid || fails) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph =
      new CUgraph_st{std::move(capture->nodes)};  // moved, so that events of the capture do not keep its work alive
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long /*flags*/) {
  *executable = new CUgraphExec_st{std::make_shared<const std::vector<fake_gpu::Node>>(graph->nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Locked locked;
  return Device::get().enqueue(stream, [nodes = executable->nodes]() -> fake_gpu::Work {
    return [replay = std::make_shared<fake_gpu::Replay>(nodes)] { return replay->step(); };
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
