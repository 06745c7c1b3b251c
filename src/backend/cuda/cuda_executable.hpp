// A graph bound to a GPU's memory. Tensors have Keras' layout, kernels are created once for each local batch size, and
// steps of training and evaluation are captured and replayed as CUDA graphs.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/cuda_context.hpp"
#include "backend/cuda/gradient_norm.hpp"
#include "backend/cuda/graph_capture.hpp"
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/operation_timer.hpp"
#include "backend/cuda/step_staging.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {

class CudaExecutable final : public Executable {
 public:
  /// `graph`, the arenas, `device_streams` and `cuda_context` must outlive the executable.
  CudaExecutable(const Graph& graph, std::vector<Operation> operations, const Arenas& arenas, std::size_t capacity,
                 DeviceStreams& device_streams, const CudaContext& cuda_context);
  ~CudaExecutable() override;

  [[nodiscard]] bool try_replay(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration,
                                bool capturable) override;
  void end_step() override;
  [[nodiscard]] bool is_capturing() const noexcept override { return graph_capture_.is_capturing(); }
  [[nodiscard]] std::string end_capture() override { return graph_capture_.end_capture(); }
  void launch_capture() override;
  void give_up_captures() override;
  void run(std::size_t operation, const StepContext& context) override;
  [[nodiscard]] std::optional<double> measured_seconds() const override;
  void update(const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t iteration) override;
  void add_squared_gradients(const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t iteration,
                             std::span<double> sums) override;
  [[nodiscard]] bool make_clip_scales(const Clipping& clipping) override;

  [[nodiscard]] std::size_t max_in_flight() const noexcept override { return timer_ ? 1 : StepStaging::slots / 2; }
  void take_metrics(std::span<float> metrics) override;
  void take_local_metrics(std::span<float> metrics) override { take_metrics(metrics); }
  void read_bytes(std::span<const std::byte> arena, std::span<std::byte> values) const override;

  void read_parameter(std::size_t parameter, std::span<const float> arena, std::span<float> values) const override;
  void write_parameter(std::size_t parameter, std::span<const float> values, std::span<float> arena) const override;
  void unpack_parameter(std::size_t parameter, std::span<const float> stored, std::span<float> values) const override;
  void update_low_precision_copies() override;

  [[nodiscard]] std::span<const float> outputs(std::size_t output) override;
  [[nodiscard]] std::string implementation(std::size_t operation) override;
  void release_data() override { staging_.release_data(); }

 private:
  using Kernels = std::vector<std::unique_ptr<Kernel>>;

  void allocate_tensors();
  std::byte* add_buffer(std::size_t bytes);
  [[nodiscard]] Kernels& kernels_for(std::size_t num_examples);
  void enqueue(std::size_t operation, const StepContext& context);
  void zero_gradients(const Operation& operation) const;
  void note_end_of_step();

  const Graph& graph_;
  std::vector<Operation> operations_;
  Arenas arenas_;
  std::size_t capacity_;
  DeviceStreams& device_streams_;
  const CudaContext& cuda_context_;
  std::vector<DeviceBuffer> memory_;
  std::vector<TensorBuffers> buffers_;
  std::byte* reduction_scratch_ = nullptr;
  float* separate_gradients_ = nullptr;  ///< see make_shared_layer
  StepStaging staging_;
  GradientNorm gradient_norm_;
  GraphCapture graph_capture_;
  std::vector<std::pair<std::size_t, Kernels>> kernels_by_size_;
  std::vector<Event> done_;  ///< by metrics slot: recorded after the slot's step
  std::size_t steps_begun_ = 0;
  std::size_t metrics_taken_ = 0;
  bool in_step_ = false;
  bool is_training_ = false;             ///< the step that has begun
  std::optional<OperationTimer> timer_;  ///< with LOCKSTEP_CUDA_PROFILE=1
  bool use_cuda_graphs_ = true;
  std::vector<float> outputs_;
};

}  // namespace lockstep::cuda
