// See cpu_executable.hpp.
#include "backend/cpu/cpu_executable.hpp"

#include "backend/cpu/constraint.hpp"
#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/optimizer_step.hpp"
#include "backend/cpu/winograd/convolution.hpp"
#include "backend/memory_plan.hpp"
#include "backend/tensor_uses.hpp"
#include "core/aligned_buffer.hpp"
#include "graph/gradient_ranges.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

namespace {

/// True if this rank's shard of a tensor-parallel layer leaves the operation without input or output channels.
bool is_empty_shard(const Graph& graph, const Operation& operation) {
  const auto empty = [&](int tensor) { return tensor >= 0 && graph.tensors[tensor].elements() == 0; };
  const bool has_bias = is_backward(operation) && traits_of(operation).has_kernel && !operation.is_frozen;
  if (has_bias) return empty(operation.output);  // the bias needs no input
  if (operation.all_to_all) return false;        // other ranks may hold channels
  return empty(operation.input) || empty(operation.output);
}

constexpr std::array kernel_factories{
#define LOCKSTEP_FACTORY(kind, kernel) &make_##kernel,
    LOCKSTEP_OPERATION_KINDS(LOCKSTEP_FACTORY)
#undef LOCKSTEP_FACTORY
};

std::unique_ptr<Kernel> make_kernel(const KernelScope& scope) {
  if (is_empty_shard(scope.graph, scope.operation)) return make_empty_shard(scope);
  const auto make = kernel_factories[static_cast<std::size_t>(scope.operation.kind)];
  return scope.operation.shared.count == 1 ? make(scope) : make_shared_layer(scope, make);
}

/// The kernel of an operation in backward that reads values which are not kept.
class RecomputingKernel final : public Kernel {
 public:
  RecomputingKernel(std::unique_ptr<Kernel> normalization, std::unique_ptr<Kernel> reader)
      : normalization_(std::move(normalization)), reader_(std::move(reader)) {}

  void run(const StepContext& context) override {
    normalization_->run(context);
    reader_->run(context);
  }

  [[nodiscard]] std::string implementation() const override { return reader_->implementation(); }

 private:
  std::unique_ptr<Kernel> normalization_;
  std::unique_ptr<Kernel> reader_;
};

/// A batch has at most as many replicas as examples, so memory for statistics is allocated per example.
std::size_t saved_bytes_per_example(SavedForBackward saved, const TensorSpec& output) {
  constexpr std::size_t statistics_per_channel = 2;  // mean and deviation
  if (saved == SavedForBackward::nothing) return 0;
  if (saved == SavedForBackward::statistics)
    return statistics_per_channel * static_cast<std::size_t>(output.channels) * sizeof(float);
  return static_cast<std::size_t>(output.elements());
}

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(const Graph& graph, std::vector<Operation> operations, const Arenas& arenas, std::size_t capacity,
                onednn::Context dnnl, int threads)
      : graph_(graph),
        operations_(std::move(operations)),
        arenas_(arenas),
        capacity_(capacity),
        dnnl_(std::move(dnnl)),
        threads_(threads) {
    allocate_tensors();
    weight_layouts_.resize(graph_.parameters.size());
    for (const Operation& operation : graph_.forward) {
      if (is_layout_of_weights_from(graph_, operation)) {
        weight_layouts_[operation.parameter] =
            weight_layout_of({dnnl_, graph_, operation, graph_.layout_examples, operation.convolution});
      }
    }
  }

  void run(std::size_t operation, const StepContext& context) override {
    const std::size_t num_examples = context.examples.size();
    if (num_examples == 0) {
      zero_gradients(operations_[operation]);
      return;
    }
    if (Kernel* kernel = kernels_for(num_examples)[operation].get()) {
      kernel->run(context);
    } else if (operations_[operation].is_batch_split && graph_.examples_of(num_examples, graph_.rank).empty()) {
      zero_gradients(operations_[operation]);
    }  // else this microbatch has no examples
  }

  void update(const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t iteration) override {
    if (shard.begin == shard.end) return;
    apply_optimizer(graph_, shard.is_local ? *arenas_.local : arenas_, shard, optimizer, iteration, threads_);
    constrain(shard);
  }

  void add_squared_gradients(const ReducedShard& shard, const Optimizer& optimizer, std::uint64_t iteration,
                             std::span<double> sums) override {
    if (shard.begin == shard.end) return;
    sum_squared_gradients(graph_, shard.is_local ? *arenas_.local : arenas_, shard, optimizer, iteration, sums,
                          threads_);
  }

  void take_metrics(std::span<float> metrics) override {
    const std::size_t offset = graph_.parameters[graph_.metrics_parameter()].offset;
    std::copy_n(arenas_.weights.data() + offset, metrics.size(), metrics.data());
  }

  void take_local_metrics(std::span<float> metrics) override {
    const std::size_t offset = graph_.parameters[graph_.metrics_parameter()].offset;
    std::copy_n(arenas_.gradients.data() + offset, metrics.size(), metrics.data());
  }

  void read_bytes(std::span<const std::byte> arena, std::span<std::byte> values) const override {
    std::copy_n(arena.data(), values.size(), values.data());
  }

  void read_parameter(std::size_t parameter, std::span<const float> arena, std::span<float> values) const override {
    const ParameterSpec& spec = graph_.parameters[parameter];
    unpack_parameter(parameter, arena.subspan(spec.offset, spec.storage), values);
  }

  void unpack_parameter(std::size_t parameter, std::span<const float> stored, std::span<float> values) const override {
    if (const Operation* dense = dense_with_kernel(parameter)) {
      const auto units = static_cast<std::size_t>(graph_.parameters[parameter].info.shape[1]);
      for_each_row(*dense, [&](std::size_t keras_row, std::size_t row) {
        std::copy_n(stored.data() + row * units, units, values.data() + keras_row * units);
      });
    } else if (is_convolution_kernel(parameter)) {
      copy_convolution(parameter, const_cast<float*>(stored.data()), values.data(), true);  // NOLINT: read only
    } else {
      std::copy_n(stored.data(), values.size(), values.data());
    }
  }

  void write_parameter(std::size_t parameter, std::span<const float> values, std::span<float> arena) const override {
    float* stored = arena.data() + graph_.parameters[parameter].offset;
    if (const Operation* dense = dense_with_kernel(parameter)) {
      const auto units = static_cast<std::size_t>(graph_.parameters[parameter].info.shape[1]);
      for_each_row(*dense, [&](std::size_t keras_row, std::size_t row) {
        std::copy_n(values.data() + keras_row * units, units, stored + row * units);
      });
    } else if (is_convolution_kernel(parameter)) {
      copy_convolution(parameter, stored, const_cast<float*>(values.data()), false);  // NOLINT: read only
    } else {
      std::copy_n(values.data(), values.size(), stored);
    }
  }

  void update_low_precision_copies() override {
    for (const Arenas* arenas : {static_cast<const Arenas*>(&arenas_), arenas_.local}) {
      if (arenas == nullptr) continue;
      for (std::size_t i = 0; i < arenas->low_precision.size(); ++i) {
        arenas->low_precision[i] = BFloat16(arenas->weights[i]).bits;
      }
    }
  }

  [[nodiscard]] std::span<const float> outputs(std::size_t output) override {
    const int tensor = graph_.outputs[output].tensor;
    return {reinterpret_cast<const float*>(buffers_[tensor].value),
            capacity_ * static_cast<std::size_t>(graph_.tensors[tensor].elements())};
  }

  void release_tensors() override {
    for (AlignedBuffer& buffer : memory_) buffer.release();
  }

  [[nodiscard]] std::string implementation(std::size_t operation) override {
    return kernels_for(capacity_)[operation]->implementation();
  }

 private:
  using Kernels = std::vector<std::unique_ptr<Kernel>>;

  /// Buffers that are used at different times share memory.
  void allocate_tensors() {
    buffers_.resize(graph_.tensors.size());
    std::vector<BufferUse> requests;
    std::vector<std::byte**> places;  // of the requests
    const auto request = [&](std::size_t bytes, const std::optional<UseRange>& use, std::byte*& place) {
      if (!use) return;
      requests.push_back({bytes, use->first, use->last});
      places.push_back(&place);
    };
    std::vector<std::size_t> in_place;  // tensors whose gradients overwrite their values
    const std::vector<TensorUses> uses = find_tensor_uses(graph_, operations_);
    allocate_recomputed_values(uses);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const TensorSpec& tensor = graph_.tensors[t];
      const std::size_t num_examples = tensor.microbatch_examples > 0 ? tensor.microbatch_examples : capacity_;
      const std::size_t bytes = num_examples * static_cast<std::size_t>(tensor.elements()) * size_of(tensor.type);
      if (is_gradient_in_place(graph_, static_cast<int>(t))) {
        in_place.push_back(t);
        request(bytes, joined(uses[t].value, uses[t].gradient), buffers_[t].value);
        continue;
      }
      request(bytes, uses[t].value, buffers_[t].value);
      if (!graph_.is_input(static_cast<int>(t))) request(bytes, uses[t].gradient, buffers_[t].gradient);
    }
    for (const Operation& operation : graph_.forward) {
      if (operation.output < 0) continue;
      const TensorSpec& output = graph_.tensors[operation.output];
      const std::size_t bytes = capacity_ * saved_bytes_per_example(traits_of(operation).saved, output);
      if (bytes > 0) {
        request(bytes, uses[value_owner(graph_, operation.output)].saved_for_backward,
                buffers_[operation.output].saved_for_backward);
      }
    }
    const MemoryPlan plan = plan_memory(requests);
    std::byte* const memory = add_buffer(plan.bytes);
    for (std::size_t i = 0; i < requests.size(); ++i) *places[i] = memory + plan.offsets[i];
    for (const std::size_t t : in_place) buffers_[t].gradient = buffers_[t].value;
    std::size_t scratch = 0;
    for (const Operation& operation : operations_) {
      if (operation.kind != OperationKind::dense_backward) continue;
      const TensorSpec& output = graph_.tensors[operation.output];
      const auto rows = capacity_ * static_cast<std::size_t>(output.height * output.width);
      scratch = std::max(scratch, rows * operation.input_features.size());
    }
    scratch *= sizeof(float);
    for (const Operation& operation : operations_) {
      const bool convolves =
          operation.kind == OperationKind::convolution || operation.kind == OperationKind::convolution_backward;
      if (!convolves || operation.convolution.forward != ConvolutionAlgorithm::winograd) continue;
      scratch = std::max(scratch, winograd_scratch_bytes(graph_, operation, threads_));
    }
    scratch_ = add_buffer(scratch);
    separate_gradients_ = reinterpret_cast<float*>(add_buffer(separate_elements(graph_, operations_) * sizeof(float)));
    share_aliases(graph_, buffers_);
  }

  /// One operation at a time uses the memory: all share it.
  void allocate_recomputed_values(std::span<const TensorUses> uses) {
    recomputed_by_.assign(operations_.size(), nullptr);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      if (!is_backward(operation) || !backward_reads_input(operation)) continue;
      const std::optional<std::size_t>& normalization = uses[value_owner(graph_, operation.input)].recomputed_by;
      if (!normalization || graph_.tensors[operation.input].elements() == 0) continue;
      recomputed_by_[i] = &operations_[*normalization];
      const TensorSpec& tensor = graph_.tensors[operation.input];
      bytes = std::max(bytes, slice_of(capacity_, 0, operation.microbatch.count).size() *
                                  static_cast<std::size_t>(tensor.elements()) * size_of(tensor.type));
    }
    recomputed_values_ = add_buffer(bytes);
  }

  std::byte* add_buffer(std::size_t bytes) { return memory_.emplace_back(bytes).data(); }

  Kernels& kernels_for(std::size_t num_examples) {
    for (auto& [size, kernels] : kernels_by_size_) {
      if (size == num_examples) return kernels;
    }
    if (num_examples > capacity_) {
      throw InternalError(
          fmt::format("a local batch of {} examples exceeds the capacity of {}", num_examples, capacity_));
    }
    Kernels kernels;
    ConvertedWeights converted_weights;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      // slice_of puts larger microbatches first, so the first one, to whose gradients the others add, is never empty.
      const Range examples =
          operation.is_batch_split ? graph_.examples_of(num_examples, graph_.rank) : Range{0, num_examples};
      const auto [index, count] = operation.microbatch;
      const Range microbatch = slice_of(examples.size(), index, count);
      const bool is_last = index + 1 == count || slice_of(examples.size(), index + 1, count).empty();
      const auto scope_of = [&](const Operation& computed, RecomputedValues recomputed) {
        return KernelScope{{graph_, computed, examples.begin + microbatch.begin, microbatch.size(), buffers_, arenas_,
                            has_separate_gradients(computed) ? separate_gradients_ : nullptr, recomputed},
                           scratch_,
                           weight_layouts_,
                           converted_weights,
                           dnnl_,
                           threads_,
                           is_last};
      };
      if (microbatch.empty()) {
        kernels.push_back(nullptr);
      } else if (const Operation* const normalization = recomputed_by_[i]) {
        kernels.push_back(std::make_unique<RecomputingKernel>(
            make_recomputed_normalization(scope_of(*normalization, {normalization->output, recomputed_values_})),
            make_kernel(scope_of(operation, {operation.input, recomputed_values_}))));
      } else {
        kernels.push_back(make_kernel(scope_of(operation, {})));
      }
    }
    return kernels_by_size_.emplace_back(num_examples, std::move(kernels)).second;
  }

  /// Applies the constraints of the variables in a shard, which holds all of each, in Keras' layout.
  void constrain(const ReducedShard& shard) {
    const Arenas& arenas = shard.is_local ? *arenas_.local : arenas_;
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      const ParameterSpec& parameter = graph_.parameters[p];
      if (!parameter.is_constrained() || parameter.is_local != shard.is_local) continue;
      const Range stored{parameter.offset, parameter.offset + parameter.storage};
      if (!stored.overlaps({shard.begin, shard.end})) continue;
      if (stored.begin < shard.begin || shard.end < stored.end) {
        throw InternalError("a rank updates a part of '" + parameter.name +
                            "', but its constraint needs all of it; please report this");
      }
      constrained_.resize(static_cast<std::size_t>(parameter.info.shape.elements()));
      read_parameter(p, arenas.weights, constrained_);
      apply_constraint(parameter.info.constraint, parameter.info.shape, constrained_);
      write_parameter(p, constrained_, arenas.weights);
      for (std::size_t i = stored.begin; i < stored.end && !arenas.low_precision.empty(); ++i) {
        arenas.low_precision[i] = BFloat16(arenas.weights[i]).bits;
      }
    }
  }

  void zero_gradients(const Operation& operation) const {
    for_each_gradient_range(graph_, operation, [this](const Range& range) {
      std::fill_n(arenas_.gradients.data() + range.begin, range.size(), 0.0F);
    });
  }

  [[nodiscard]] const Operation* dense_with_kernel(std::size_t parameter) const {
    for (const Operation& operation : graph_.forward) {
      const bool its_kernel = operation.parameter == static_cast<int>(parameter);
      if (operation.kind == OperationKind::dense && its_kernel) return &operation;
    }
    return nullptr;
  }

  /// Compares the size, because an empty descriptor converts to false in oneDNN 2 but to true in oneDNN 3.
  [[nodiscard]] bool is_convolution_kernel(std::size_t parameter) const {
    return weight_layouts_[parameter].get_size() != 0;
  }

  /// Visits the rows of a Dense kernel: their index in Keras' order and in the order of the input's layout.
  template <typename Visit>
  void for_each_row(const Operation& dense, Visit visit) const {
    const TensorSpec& input = graph_.tensors[dense.input];
    const std::int64_t rows = graph_.parameters[dense.parameter].info.shape[0];
    for (std::int64_t row = 0; row < rows; ++row) {  // of a Dense that reads pixels, the rows are channels
      visit(static_cast<std::size_t>(row), static_cast<std::size_t>(input.offset_of_keras_index(row)));
    }
  }

  void copy_convolution(std::size_t parameter, float* stored, float* values, bool read) const {
    const auto convolution = std::ranges::find_if(graph_.forward, [parameter](const Operation& operation) {
      return operation.kind == OperationKind::convolution && operation.parameter == static_cast<int>(parameter);
    });
    // A separate stream, because the training thread may be using dnnl_.stream.
    const onednn::Context context{dnnl_.engine, dnnl::stream(dnnl_.engine)};
    const dnnl::memory arena(weight_layouts_[parameter], context.engine, stored);
    const dnnl::memory keras(keras_kernel_descriptor(graph_, *convolution), context.engine, values);
    onednn::reorder(context, read ? arena : keras, read ? keras : arena).run();
  }

  const Graph& graph_;
  std::vector<Operation> operations_;
  Arenas arenas_;
  std::size_t capacity_;
  onednn::Context dnnl_;
  int threads_;
  std::vector<AlignedBuffer> memory_;
  std::vector<TensorBuffers> buffers_;
  std::byte* scratch_ = nullptr;
  std::byte* recomputed_values_ = nullptr;
  std::vector<const Operation*> recomputed_by_;     ///< by operation: the normalization whose output it recomputes
  float* separate_gradients_ = nullptr;             ///< see make_shared_layer
  std::vector<dnnl::memory::desc> weight_layouts_;  ///< of convolution kernels; empty for other parameters
  std::vector<std::pair<std::size_t, Kernels>> kernels_by_size_;
  std::vector<float> constrained_;  ///< a variable while its constraint is applied
};

}  // namespace

bool is_layout_of_weights_from(const Graph& graph, const Operation& operation) {
  return operation.kind == OperationKind::convolution && operation.shared.index == 0 &&
         !is_empty_shard(graph, operation);
}

std::unique_ptr<Executable> make_cpu_executable(const Graph& graph, std::vector<Operation> operations,
                                                const Arenas& arenas, std::size_t capacity, const onednn::Context& dnnl,
                                                int threads) {
  return std::make_unique<CpuExecutable>(graph, std::move(operations), arenas, capacity, dnnl, threads);
}

}  // namespace lockstep
