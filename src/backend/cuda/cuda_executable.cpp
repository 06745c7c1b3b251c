// See cuda_executable.hpp.
#include "backend/cuda/cuda_executable.hpp"

#include "backend/cuda/helpers.hpp"
#include "backend/cuda/kernel_order.hpp"
#include "backend/cuda/update.hpp"
#include "backend/cuda/updates.hpp"
#include "core/environment.hpp"

#include <algorithm>
#include <exception>

namespace lockstep::cuda {

namespace {

std::unique_ptr<Kernel> make_kernel(const KernelScope& scope) {
  switch (scope.operation.kind) {
    case OperationKind::gather: return make_gather(scope);
    case OperationKind::convolution: return make_convolution(scope);
    case OperationKind::convolution_backward: return make_convolution_backward(scope);
    case OperationKind::dense: return make_dense(scope);
    case OperationKind::dense_backward: return make_dense_backward(scope);
    case OperationKind::max_pooling:
    case OperationKind::max_pooling_backward:
    case OperationKind::average_pooling:
    case OperationKind::average_pooling_backward: return make_pooling(scope);
    case OperationKind::batch_normalization:
    case OperationKind::batch_normalization_backward: return make_batch_normalization(scope);
    case OperationKind::loss: return make_loss(scope);
    default: return make_elementwise(scope);
  }
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

CudaExecutable::CudaExecutable(const Graph& graph, std::vector<Operation> operations, const Arenas& arenas,
                               std::size_t capacity, DeviceQueue& queue, const Tools& tools)
    : graph_(graph),
      operations_(std::move(operations)),
      arenas_(arenas),
      capacity_(capacity),
      queue_(queue),
      tools_(tools),
      feed_(queue, capacity, elements_of(graph, 0), elements_of(graph, graph.forward.back().input)),
      norms_(graph),
      recorder_(queue.compute()),
      records_(value_of(current_environment(), "LOCKSTEP_CUDA_GRAPHS") != "0") {
  allocate_tensors();
  for (std::size_t slot = 0; slot < StepFeed::slots; ++slot) done_.push_back(make_event());
}

CudaExecutable::~CudaExecutable() {
  // Nothing may be freed that the device still uses. After an error it may never finish; then the process ends anyway.
  if (std::uncaught_exceptions() > 0) return;
  try {
    queue_.finish();
  } catch (const std::exception&) {
    // whoever uses the device next is told
  }
}

bool CudaExecutable::begin_step(const StepContext& context, const Optimizer& optimizer, std::uint64_t iteration,
                                bool recordable) {
  feed_.upload(context, scalars_of(optimizer, iteration), steps_begun_ % StepFeed::slots);
  in_step_ = true;
  if (!recorder_.begin(StepShape::of(context, recordable && records_))) return false;
  note_end_of_step();
  return true;
}

void CudaExecutable::end_step() {
  const ParameterSpec& metrics = graph_.parameters[graph_.metrics_parameter()];
  publish_metrics(queue_.compute(), arenas_.weights.data() + metrics.offset, feed_.metrics(), feed_.arguments());
  recorder_.end();
  note_end_of_step();
}

void CudaExecutable::note_end_of_step() {
  check(cudaEventRecord(done_[steps_begun_ % StepFeed::slots].get(), queue_.compute()), "cudaEventRecord");
  ++steps_begun_;
  in_step_ = false;
}

void CudaExecutable::run(const Operation& operation, const StepContext& context) {
  if (operation.kind == OperationKind::gather && !in_step_) feed_.upload(context, {}, 0);
  if (context.examples.empty()) {
    contribute_nothing(operation);
    return;
  }
  kernels_for(context.examples.size())[operation.id]->enqueue(context);
}

void CudaExecutable::update(const UpdateShare& share, const Optimizer& optimizer, std::uint64_t /*iteration*/) {
  update_share(queue_.communication(), graph_, arenas_, share.begin, share.end, optimizer, norms_, feed_.arguments());
}

void CudaExecutable::add_squares(const UpdateShare& share, std::span<double> /*sums*/) const {
  norms_.add_squares(queue_.communication(), graph_, arenas_.gradients.data(), share.begin, share.end);
}

bool CudaExecutable::find_scales(const Clipping& clipping) const {
  norms_.find_scales(queue_.communication(), clipping);
  return true;
}

void CudaExecutable::take_metrics(std::span<float, metric_places> sums) {
  const std::size_t slot = metrics_taken_++ % StepFeed::slots;
  queue_.wait_for(done_[slot].get());
  std::copy_n(feed_.metrics() + slot * metric_places, sums.size(), sums.data());
}

void CudaExecutable::read(std::span<const float> arena, std::span<float> values) const {
  queue_.finish();
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
    to_keras_order(graph_.parameters[parameter].info.shape, stored, values);
  } else {
    std::copy_n(stored.begin(), values.size(), values.begin());
  }
}

void CudaExecutable::write_parameter(std::size_t parameter, std::span<const float> values,
                                     std::span<float> arena) const {
  const ParameterSpec& spec = graph_.parameters[parameter];
  std::vector<float> stored(values.begin(), values.end());
  if (is_convolution_kernel(graph_, parameter)) to_cudnn_order(spec.info.shape, values, stored);
  queue_.finish();
  check(cudaMemcpyAsync(arena.data() + spec.offset, stored.data(), stored.size() * sizeof(float),
                        cudaMemcpyHostToDevice, queue_.compute()),
        "cudaMemcpyAsync");
  queue_.finish();
}

void CudaExecutable::refresh() {
  if (!arenas_.low_precision.empty()) round_weights(queue_.compute(), arenas_);
  queue_.finish();
}

std::span<const float> CudaExecutable::outputs() const {
  const int tensor = graph_.forward.back().input;
  outputs_.resize(capacity_ * elements_of(graph_, tensor));
  read({reinterpret_cast<const float*>(buffers_[tensor].value), outputs_.size()}, outputs_);
  return outputs_;
}

std::string CudaExecutable::implementation(const Operation& operation) {
  return kernels_for(capacity_)[operation.id]->implementation();
}

void CudaExecutable::allocate_tensors() {
  buffers_.resize(graph_.tensors.size());
  std::int64_t most_channels = 1;
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
    const TensorSpec& tensor = graph_.tensors[t];
    most_channels = std::max(most_channels, tensor.channels);
    if (tensor.alias >= 0) {
      buffers_[t] = buffers_[tensor.alias];
      continue;
    }
    const std::size_t bytes = capacity_ * elements_of(graph_, static_cast<int>(t)) * size_of(tensor.type);
    buffers_[t].value = add_buffer(bytes);
    if (t > 0) buffers_[t].gradient = add_buffer(bytes);
  }
  for (const Operation& operation : graph_.forward) {
    if (operation.output < 0) continue;
    if (operation.kind == OperationKind::max_pooling) {
      buffers_[operation.output].notes = add_buffer(capacity_ * elements_of(graph_, operation.output));
    }
    if (operation.kind == OperationKind::batch_normalization) {  // four arrays for up to a replica an example
      const auto channels = static_cast<std::size_t>(graph_.tensors[operation.output].channels);
      buffers_[operation.output].notes = add_buffer(capacity_ * 4 * channels * sizeof(float));
    }
  }
  sum_scratch_ = add_buffer(sum_scratch_bytes(static_cast<std::size_t>(most_channels)));
}

std::byte* CudaExecutable::add_buffer(std::size_t bytes) { return memory_.emplace_back(bytes).data(); }

CudaExecutable::Kernels& CudaExecutable::kernels_for(std::size_t rows) {
  for (auto& [size, kernels] : programs_) {
    if (size == rows) return kernels;
  }
  // Algorithms are measured on the device, and what they write lies in buffers that the steps under way may read.
  queue_.finish();
  Kernels kernels;
  for (const Operation& operation : operations_) {
    kernels.push_back(
        make_kernel({graph_, operation, rows, buffers_, arenas_, feed_.arguments(), sum_scratch_, tools_}));
  }
  return programs_.emplace_back(rows, std::move(kernels)).second;
}

/// A rank without examples still takes part: its gradients and metric sums are zero.
void CudaExecutable::contribute_nothing(const Operation& operation) const {
  if (operation.parameter < 0) return;
  if (operation.kind == OperationKind::loss) {
    zero(graph_.parameters[operation.parameter].offset, graph_.parameters[operation.parameter].storage);
    return;
  }
  if (operation.kind < OperationKind::loss) return;
  const std::size_t count = graph_.layers[operation.layer].parameters.size();
  std::size_t first = 0;
  if (operation.kind == OperationKind::dense_backward) {  // its chunk of the kernel; the bias goes with the first
    const ParameterSpec& kernel = graph_.parameters[operation.parameter];
    const std::int64_t units = kernel.info.shape[1];
    zero(kernel.offset + static_cast<std::size_t>(operation.rows_begin * units),
         static_cast<std::size_t>((operation.rows_end - operation.rows_begin) * units));
    first = operation.rows_begin == 0 ? 1 : count;
  }
  for (std::size_t i = first; i < count; ++i) {
    const ParameterSpec& parameter = graph_.parameters[static_cast<std::size_t>(operation.parameter) + i];
    zero(parameter.offset, parameter.storage);
  }
}

void CudaExecutable::zero(std::size_t offset, std::size_t count) const {
  check(cudaMemsetAsync(arenas_.gradients.data() + offset, 0, count * sizeof(float), queue_.compute()),
        "cudaMemsetAsync");
}

}  // namespace lockstep::cuda
