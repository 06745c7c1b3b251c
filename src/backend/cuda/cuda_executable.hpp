// A graph bound to a GPU's memory: layouts are Keras' own, kernels are made once for each slice size, training steps
// are recorded and replayed.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/gradient_norms.hpp"
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/recorder.hpp"
#include "backend/cuda/step_feed.hpp"
#include "backend/cuda/tools.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {

class CudaExecutable final : public Executable {
 public:
  /// `graph`, the arenas, `queue` and `tools` must outlive the executable.
  CudaExecutable(const Graph& graph, std::vector<Operation> operations, const Arenas& arenas, std::size_t capacity,
                 DeviceQueue& queue, const Tools& tools);
  ~CudaExecutable() override;

  [[nodiscard]] bool begin_step(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration,
                                bool recordable) override;
  void end_step() override;
  void run(const Operation& operation, const StepContext& context) override;
  void update(const UpdateShare& share, const Optimizer& optimizer, std::uint64_t iteration) override;
  void add_squares(const UpdateShare& share, std::span<double> sums) const override;
  [[nodiscard]] bool find_scales(const Clipping& clipping) const override;

  [[nodiscard]] std::size_t steps_ahead() const noexcept override { return StepFeed::slots / 2; }
  void take_metrics(std::span<float, metric_places> sums) override;
  void read(std::span<const float> arena, std::span<float> values) const override;

  void read_parameter(std::size_t parameter, std::span<const float> arena, std::span<float> values) const override;
  void write_parameter(std::size_t parameter, std::span<const float> values, std::span<float> arena) const override;
  void unpack_parameter(std::size_t parameter, std::span<const float> stored, std::span<float> values) const override;
  void refresh() override;

  [[nodiscard]] std::span<const float> outputs() const override;
  [[nodiscard]] std::string implementation(const Operation& operation) override;

 private:
  using Kernels = std::vector<std::unique_ptr<Kernel>>;

  void allocate_tensors();
  std::byte* add_buffer(std::size_t bytes);
  [[nodiscard]] Kernels& kernels_for(std::size_t rows);
  void contribute_nothing(const Operation& operation) const;
  void zero(std::size_t offset, std::size_t count) const;
  void note_end_of_step();

  const Graph& graph_;
  std::vector<Operation> operations_;
  Arenas arenas_;
  std::size_t capacity_;
  DeviceQueue& queue_;
  const Tools& tools_;
  std::vector<DeviceBuffer> memory_;
  std::vector<TensorBuffers> buffers_;
  std::byte* sum_scratch_ = nullptr;
  StepFeed feed_;
  GradientNorms norms_;
  Recorder recorder_;
  std::vector<std::pair<std::size_t, Kernels>> programs_;
  std::vector<Event> done_;  ///< of the step in each metrics slot
  std::size_t steps_begun_ = 0;
  std::size_t metrics_taken_ = 0;
  bool in_step_ = false;
  bool records_ = true;
  mutable std::vector<float> outputs_;
};

}  // namespace lockstep::cuda
