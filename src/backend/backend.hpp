// The interface that every device implements: a backend chooses layouts and compiles a graph into an executable.
#pragma once

#include "backend/executable.hpp"
#include "graph/graph.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// How a plan splits gradients.
struct PlanOptions {
  /// A Dense kernel is split into chunks of about this many bytes: small enough that a chunk's gradient stays in the
  /// second-level cache until it is reduced and its weights are updated, large enough for an efficient matrix product.
  std::size_t chunk_bytes = std::size_t{416} << 10U;
  /// Parameters are added to a bucket until it has this many bytes.
  std::size_t bucket_bytes = std::size_t{64} << 10U;
  /// A bucket's update waits until this many further buckets are ready, so that the other ranks can catch up.
  std::size_t update_lag = 1;
  int ranks = 1;  ///< in the world
};

namespace cuda {
class DeviceStreams;
}

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// "AMD EPYC with AVX512_CORE_BF16, 1 thread, oneDNN 2.6.3".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// The plan options for this device in a world of `ranks` ranks.
  [[nodiscard]] virtual PlanOptions plan_options(int ranks) const { return {.ranks = ranks}; }

  /// The streams of a GPU; null for a CPU.
  [[nodiscard]] virtual cuda::DeviceStreams* device_streams() const noexcept { return nullptr; }

  /// Names and versions of the compute libraries, for provenance: {"onednn", "2.6.3"}. Ranks must agree on them.
  [[nodiscard]] virtual std::map<std::string, std::string> libraries() const = 0;

  /// The instruction set that the libraries' kernels use, as ONEDNN_MAX_CPU_ISA names it: "AVX2". Results depend on it,
  /// so ranks must agree on it. Empty for a device that has no such choice.
  [[nodiscard]] virtual std::string instruction_set() const { return {}; }

  /// Throws UsageError if the device cannot compute in bfloat16.
  virtual void require_bfloat16() const = 0;

  /// Why a graph that is laid out may train slower than it could, one sentence each: bfloat16 that this device computes
  /// slowly.
  [[nodiscard]] virtual std::vector<std::string> warnings(const Graph& /*graph*/) const { return {}; }

  /// Chooses the fastest layouts for local batches of `examples` examples: sets TensorSpec::layout
  /// and ParameterSpec::storage, and the graph's capacity to `examples`. The graph can then be compiled for any
  /// capacity.
  virtual void lay_out(Graph& graph, std::size_t examples) const = 0;

  /// `operations` are the plan's (Plan::compute); the executable runs them by index, on local batches of up to
  /// `capacity` examples. `graph` and the arenas must outlive it.
  [[nodiscard]] virtual std::unique_ptr<Executable> compile(const Graph& graph, std::vector<Operation> operations,
                                                            const Arenas& arenas, std::size_t capacity) const = 0;
};

}  // namespace lockstep
