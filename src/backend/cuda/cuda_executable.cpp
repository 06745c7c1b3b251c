// See cuda_executable.hpp.
#include "backend/cuda/cuda_executable.hpp"

#include "backend/cuda/filter_layout.hpp"
#include "backend/cuda/kernel_launchers.hpp"
#include "backend/cuda/optimizer_functors.hpp"
#include "backend/cuda/optimizer_step.hpp"
#include "core/environment.hpp"
#include "graph/gradient_ranges.hpp"
#include "losses/loss_registry.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <exception>

namespace lockstep::cuda {

namespace {

constexpr std::array kernel_factories{
#define LOCKSTEP_FACTORY(kind, kernel) &make_##kernel,
    LOCKSTEP_OPERATION_KINDS(LOCKSTEP_FACTORY)
#undef LOCKSTEP_FACTORY
};

std::unique_ptr<Kernel> make_kernel(const KernelScope& scope) {
  const auto make = kernel_factories[static_cast<std::size_t>(scope.operation.kind)];
  return scope.operation.shared.count == 1 ? make(scope) : make_shared_layer(scope, make);
}

/// Backward recomputes Dropout's mask, so only max pooling and BatchNormalization save data. A batch has at most as
/// many replicas as examples, so memory for statistics is allocated per example.
std::size_t saved_bytes_per_example(SavedForBackward saved, const TensorSpec& output) {
  constexpr std::size_t statistics_per_channel = 4;
  if (saved == SavedForBackward::argmaxes) return static_cast<std::size_t>(output.elements());
  if (saved == SavedForBackward::statistics)
    return statistics_per_channel * static_cast<std::size_t>(output.channels) * sizeof(float);
  return 0;
}

bool is_convolution_kernel(const Graph& graph, std::size_t parameter) {
  return std::any_of(graph.forward.begin(), graph.forward.end(), [parameter](const Operation& operation) {
    return operation.kind == OperationKind::convolution && operation.parameter == static_cast<int>(parameter);
  });
}

std::size_t elements_of(const Graph& graph, int tensor) {
  return static_cast<std::size_t>(graph.tensors[tensor].elements());
}

}  // namespace

// GPUs do not support tensor parallelism.
std::unique_ptr<Kernel> make_finish_partial_sum(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_partial_gradient_sum(const KernelScope& scope) { refuse_layer(scope); }
std::unique_ptr<Kernel> make_all_to_all(const KernelScope& scope) { refuse_layer(scope); }

CudaExecutable::CudaExecutable(const Graph& graph, std::vector<Operation> operations, const Arenas& arenas,
                               std::size_t capacity, DeviceStreams& device_streams, const CudaContext& cuda_context)
    : graph_(graph),
      operations_(std::move(operations)),
      arenas_(arenas),
      capacity_(capacity),
      device_streams_(device_streams),
      cuda_context_(cuda_context),
      staging_(device_streams, capacity, elements_of(graph, graph.inputs.front().tensor),
               elements_of(graph, graph.outputs.front().tensor), graph.parameters[graph.metrics_parameter()].storage,
               reduction_of(graph.outputs.front().loss)),
      gradient_norm_(graph),
      graph_capture_(device_streams.compute()),
      use_cuda_graphs_(value_of(current_environment(), "LOCKSTEP_CUDA_GRAPHS") != "0") {
  allocate_tensors();
  if (value_of(current_environment(), "LOCKSTEP_CUDA_PROFILE") == "1") {
    timer_.emplace(device_streams);
    use_cuda_graphs_ = false;  // a captured step is one piece of work
  }
  for (std::size_t slot = 0; slot < StepStaging::slots; ++slot) done_.push_back(make_event());
}

CudaExecutable::~CudaExecutable() {
  // The device must not use memory that is freed here. After an error it may never finish, but then the process ends.
  if (std::uncaught_exceptions() > 0) return;
  try {
    device_streams_.synchronize();
  } catch (const std::exception&) {
    // the next call on the device reports the error
  }
}

bool CudaExecutable::try_replay(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration,
                                bool capturable) {
  staging_.upload(context, update_rule_of(optimizer, iteration), shared_update(optimizer, iteration),
                  steps_begun_ % StepStaging::slots);
  in_step_ = true;
  is_training_ = context.training;
  if (!graph_capture_.try_replay(StepShape::of(context, capturable && use_cuda_graphs_))) return false;
  note_end_of_step();
  return true;
}

void CudaExecutable::end_step() {
  const ParameterSpec& metrics = graph_.parameters[graph_.metrics_parameter()];
  const std::span<float> written = is_training_ ? arenas_.weights : arenas_.gradients;
  publish_metrics(device_streams_.compute(), written.subspan(metrics.offset, metrics.storage), staging_.metrics(),
                  staging_.arguments());
  if (!graph_capture_.is_capturing()) note_end_of_step();
}

void CudaExecutable::launch_capture() {
  graph_capture_.launch();
  note_end_of_step();
}

void CudaExecutable::give_up_captures() {
  graph_capture_.forget();
  use_cuda_graphs_ = false;
}

void CudaExecutable::note_end_of_step() {
  check(cudaEventRecord(done_[steps_begun_ % StepStaging::slots].get(), device_streams_.compute()), "cudaEventRecord");
  ++steps_begun_;
  in_step_ = false;
}

void CudaExecutable::run(std::size_t operation, const StepContext& context) {
  if (!timer_) return enqueue(operation, context);
  timer_->measure(std::string(to_string(operations_[operation].kind)), device_streams_.compute(),
                  [&] { enqueue(operation, context); });
}

std::optional<double> CudaExecutable::measured_seconds() const {
  return timer_ ? std::optional(timer_->seconds()) : std::nullopt;
}

void CudaExecutable::enqueue(std::size_t operation, const StepContext& context) {
  if (operations_[operation].kind == OperationKind::gather && !in_step_) staging_.upload(context, {}, {}, 0);
  if (context.examples.empty()) {
    zero_gradients(operations_[operation]);
    return;
  }
  kernels_for(context.examples.size())[operation]->enqueue(context);
}

void CudaExecutable::update(const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t /*iteration*/) {
  const auto apply = [&] {
    apply_optimizer(device_streams_.communication(), graph_, arenas_, shard.begin, shard.end, optimizer, gradient_norm_,
                    staging_.arguments());
  };
  if (!timer_) return apply();
  timer_->measure("update", device_streams_.communication(), apply);
}

void CudaExecutable::add_squared_gradients(const ReducedShard& shard, const Optimizer& optimizer,
                                           std::uint64_t iteration, std::span<double> /*sums*/) {
  if (shared_update(optimizer, iteration).accumulates()) {
    throw UsageError(std::string(keras_name(optimizer)) +
                     "'s gradient_accumulation_steps together with clipnorm or global_clipnorm is not supported on "
                     "GPUs yet; use one of them, or --device cpu");
  }
  gradient_norm_.add_squared_gradients(device_streams_.communication(), graph_, arenas_.gradients.data(), shard.begin,
                                       shard.end);
}

bool CudaExecutable::make_clip_scales(const Clipping& clipping) {
  gradient_norm_.make_clip_scales(device_streams_.communication(), clipping);
  return true;
}

void CudaExecutable::take_metrics(std::span<float> metrics) {
  const std::size_t slot = metrics_taken_++ % StepStaging::slots;
  device_streams_.wait_for(done_[slot].get());
  std::copy_n(staging_.metrics() + slot * metrics.size(), metrics.size(), metrics.data());
}

void CudaExecutable::read_bytes(std::span<const std::byte> arena, std::span<std::byte> values) const {
  device_streams_.synchronize();
  check(cudaMemcpy(values.data(), arena.data(), values.size_bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

void CudaExecutable::read_parameter(std::size_t parameter, std::span<const float> arena,
                                    std::span<float> values) const {
  const ParameterSpec& spec = graph_.parameters[parameter];
  std::vector<float> stored(spec.storage);
  read(arena.subspan(spec.offset, stored.size()), stored);
  unpack_parameter(parameter, stored, values);
}

void CudaExecutable::unpack_parameter(std::size_t parameter, std::span<const float> stored,
                                      std::span<float> values) const {
  if (is_convolution_kernel(graph_, parameter)) {
    to_keras_layout(graph_.parameters[parameter].info.shape, stored, values);
  } else {
    std::copy_n(stored.begin(), values.size(), values.begin());
  }
}

void CudaExecutable::write_parameter(std::size_t parameter, std::span<const float> values,
                                     std::span<float> arena) const {
  const ParameterSpec& spec = graph_.parameters[parameter];
  std::vector<float> stored(values.begin(), values.end());
  if (is_convolution_kernel(graph_, parameter)) to_cudnn_layout(spec.info.shape, values, stored);
  device_streams_.synchronize();
  check(cudaMemcpyAsync(arena.data() + spec.offset, stored.data(), stored.size() * sizeof(float),
                        cudaMemcpyHostToDevice, device_streams_.compute()),
        "cudaMemcpyAsync");
  device_streams_.synchronize();
}

void CudaExecutable::update_low_precision_copies() {
  if (!arenas_.low_precision.empty()) round_weights_to_bfloat16(device_streams_.compute(), arenas_);
  device_streams_.synchronize();
}

std::span<const float> CudaExecutable::outputs(std::size_t output) {
  const int tensor = graph_.outputs[output].tensor;
  outputs_.resize(capacity_ * elements_of(graph_, tensor));
  read({reinterpret_cast<const float*>(buffers_[tensor].value), outputs_.size()}, outputs_);
  return outputs_;
}

std::string CudaExecutable::implementation(std::size_t operation) {
  return kernels_for(capacity_)[operation]->implementation();
}

void CudaExecutable::allocate_tensors() {
  buffers_.resize(graph_.tensors.size());
  std::int64_t max_channels = 1;
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
    const TensorSpec& tensor = graph_.tensors[t];
    max_channels = std::max(max_channels, tensor.channels);
    const std::size_t bytes = capacity_ * elements_of(graph_, static_cast<int>(t)) * size_of(tensor.type);
    if (tensor.alias < 0) buffers_[t].value = add_buffer(bytes);
    if (tensor.gradient_alias < 0 && !graph_.is_input(static_cast<int>(t))) buffers_[t].gradient = add_buffer(bytes);
  }
  for (const Operation& operation : graph_.forward) {
    if (operation.output < 0) continue;
    const std::size_t bytes = saved_bytes_per_example(traits_of(operation).saved, graph_.tensors[operation.output]);
    if (bytes > 0) buffers_[operation.output].saved_for_backward = add_buffer(capacity_ * bytes);
  }
  share_aliases(graph_, buffers_);
  separate_gradients_ = reinterpret_cast<float*>(add_buffer(separate_elements(graph_, operations_) * sizeof(float)));
  reduction_scratch_ = add_buffer(channel_reduction_scratch_bytes(static_cast<std::size_t>(max_channels)));
}

std::byte* CudaExecutable::add_buffer(std::size_t bytes) { return memory_.emplace_back(bytes).data(); }

CudaExecutable::Kernels& CudaExecutable::kernels_for(std::size_t num_examples) {
  for (auto& [size, kernels] : kernels_by_size_) {
    if (size == num_examples) return kernels;
  }
  // Measuring algorithms overwrites buffers that steps in flight may still read.
  device_streams_.synchronize();
  cuda_context_.workspace().begin_choice();
  Kernels kernels;
  for (const Operation& operation : operations_) {
    kernels.push_back(make_kernel({{graph_, operation, 0, num_examples, buffers_, arenas_,
                                    has_separate_gradients(operation) ? separate_gradients_ : nullptr},
                                   staging_.arguments(),
                                   reduction_scratch_,
                                   cuda_context_}));
  }
  device_streams_.synchronize();
  cuda_context_.workspace().end_choice();
  return kernels_by_size_.emplace_back(num_examples, std::move(kernels)).second;
}

void CudaExecutable::zero_gradients(const Operation& operation) const {
  for_each_gradient_range(graph_, operation, [this](const Range& range) {
    check(cudaMemsetAsync(arenas_.gradients.data() + range.begin, 0, range.size() * sizeof(float),
                          device_streams_.compute()),
          "cudaMemsetAsync");
  });
}

}  // namespace lockstep::cuda
