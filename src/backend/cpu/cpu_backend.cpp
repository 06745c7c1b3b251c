// The CPU backend: layouts as oneDNN likes them, memory for the largest slice, kernels made once for each slice size.
#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/layouts.hpp"
#include "backend/cpu/update.hpp"
#include "backend/make_backend.hpp"
#include "core/aligned_buffer.hpp"

#include <lockstep/core/error.hpp>

#include <omp.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>

namespace lockstep {

namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

/// What a core keeps at hand between two operations. Twice a second-level cache of today: measured best on Zen 5 (1
/// MiB) and in its neighbourhood flat, so it is not worth asking each machine.
constexpr std::size_t cache_bytes = std::size_t{2560} << 10U;

/// True for an operation of a layer divided by features whose input or output no channel of this rank is in.
bool has_nothing(const Graph& graph, const Operation& operation) {
  const auto empty = [&](int tensor) { return tensor >= 0 && graph.tensors[tensor].elements() == 0; };
  const bool has_bias =
      operation.kind == OperationKind::dense_backward || operation.kind == OperationKind::convolution_backward;
  if (has_bias) return empty(operation.output);  // the bias needs no input
  if (operation.exchange >= 0) return false;     // others may have something
  return empty(operation.input) || empty(operation.output);
}

std::unique_ptr<Kernel> make_kernel(const KernelScope& scope) {
  if (has_nothing(scope.graph, scope.operation)) return make_nothing(scope);
  switch (scope.operation.kind) {
    case OperationKind::gather: return make_gather(scope);
    case OperationKind::convolution: return make_convolution(scope);
    case OperationKind::convolution_backward: return make_convolution_backward(scope);
    case OperationKind::dense: return make_dense(scope);
    case OperationKind::dense_backward: return make_dense_backward(scope);
    case OperationKind::max_pooling:
    case OperationKind::max_pooling_backward: return make_max_pooling(scope);
    case OperationKind::average_pooling:
    case OperationKind::average_pooling_backward: return make_average_pooling(scope);
    case OperationKind::batch_normalization:
    case OperationKind::batch_normalization_backward: return make_batch_normalization(scope);
    case OperationKind::loss: return make_loss(scope);
    case OperationKind::finish_sum:
    case OperationKind::offer_gradient:
    case OperationKind::take_gradient: return make_exchange(scope);
    case OperationKind::pack:
    case OperationKind::unpack: return make_blocks(scope);
    default: return make_elementwise(scope);
  }
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
    masters_.resize(graph_.parameters.size());
    for (const Operation& operation : graph_.forward) {
      if (operation.kind == OperationKind::convolution && !has_nothing(graph_, operation)) {
        masters_[operation.parameter] =
            ConvolutionDescriptors(dnnl_, graph_, operation, std::max<std::size_t>(capacity, 1)).master;
      }
    }
  }

  void run(const Operation& operation, const StepContext& context) override {
    if (context.examples.empty()) {
      contribute_nothing(operation);
      return;
    }
    const std::size_t rows = context.examples.size();
    if (Kernel* kernel = kernels_for(rows)[operation.id].get()) {
      kernel->run(context);
    } else if (operation.by_examples && graph_.rows_of(rows, graph_.rank).size() == 0) {
      contribute_nothing(operation);
    }  // else a slice of few examples, which has none for some of the parts
  }

  void update(const UpdateShare& share, const Optimizer& optimizer, std::uint64_t iteration) override {
    if (share.begin == share.end) return;
    update_share(graph_, share.own ? *arenas_.own : arenas_, share, optimizer, iteration, threads_);
  }

  void add_squares(const UpdateShare& share, std::span<double> sums) const override {
    if (share.begin < share.end) add_squares_of_share(graph_, share, sums, threads_);
  }

  void take_metrics(std::span<float, metric_places> sums) override {
    const ParameterSpec& metrics = graph_.parameters[graph_.metrics_parameter()];
    std::copy_n(arenas_.weights.data() + metrics.offset, sums.size(), sums.data());
  }

  void read(std::span<const float> arena, std::span<float> values) const override {
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

  void refresh() override {
    for (const Arenas* arenas : {static_cast<const Arenas*>(&arenas_), arenas_.own}) {
      if (arenas == nullptr) continue;
      for (std::size_t i = 0; i < arenas->low_precision.size(); ++i) {
        arenas->low_precision[i] = BFloat16(arenas->weights[i]).bits;
      }
    }
  }

  [[nodiscard]] std::span<const float> outputs() const override {
    const int tensor = graph_.forward.back().input;
    return {reinterpret_cast<const float*>(buffers_[tensor].value),
            capacity_ * static_cast<std::size_t>(graph_.tensors[tensor].elements())};
  }

  [[nodiscard]] std::string implementation(const Operation& operation) override {
    return kernels_for(capacity_)[operation.id]->implementation();
  }

 private:
  using Kernels = std::vector<std::unique_ptr<Kernel>>;

  void allocate_tensors() {
    buffers_.resize(graph_.tensors.size());
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const TensorSpec& tensor = graph_.tensors[t];
      if (tensor.alias >= 0) {
        buffers_[t] = buffers_[tensor.alias];
        continue;
      }
      const std::size_t size = tensor.type == ElementType::bfloat16 ? sizeof(BFloat16) : sizeof(float);
      const std::size_t rows = tensor.passing_rows > 0 ? tensor.passing_rows : capacity_;
      const std::size_t bytes = rows * static_cast<std::size_t>(tensor.elements()) * size;
      buffers_[t].value = add_buffer(bytes);
      if (t > 0)
        buffers_[t].gradient = gradient_in_place(graph_, static_cast<int>(t)) ? buffers_[t].value : add_buffer(bytes);
    }
    std::size_t scratch = 0;
    for (const Operation& operation : operations_) {
      if (operation.kind != OperationKind::dense_backward) continue;
      scratch = std::max(scratch, capacity_ * static_cast<std::size_t>(operation.rows_end - operation.rows_begin));
    }
    scratch_ = add_buffer(scratch * sizeof(float));
    for (const Operation& operation : graph_.forward) {
      if (operation.output < 0) continue;
      const TensorSpec& output = graph_.tensors[operation.output];
      if (operation.kind == OperationKind::max_pooling || operation.kind == OperationKind::dropout) {
        buffers_[operation.output].notes = add_buffer(capacity_ * static_cast<std::size_t>(output.elements()));
      }
      if (operation.kind == OperationKind::batch_normalization) {  // mean and deviation of up to a replica an example
        const std::size_t statistics = 2 * static_cast<std::size_t>(output.channels) * sizeof(float);
        buffers_[operation.output].notes = add_buffer(capacity_ * statistics);
      }
    }
  }

  std::byte* add_buffer(std::size_t bytes) { return memory_.emplace_back(bytes).data(); }

  Kernels& kernels_for(std::size_t rows) {
    for (auto& [size, kernels] : programs_) {
      if (size == rows) return kernels;
    }
    if (rows > capacity_) {
      throw InternalError("a slice of " + std::to_string(rows) + " examples exceeds the " + std::to_string(capacity_) +
                          " that memory was made for");
    }
    Kernels kernels;
    for (const Operation& operation : operations_) {
      // The larger parts come first, so that the first one, whose kernels begin the sums, has an example.
      const Slice mine = operation.by_examples ? graph_.rows_of(rows, graph_.rank) : Slice{0, rows};
      const Slice part =
          slice_of(mine.size(), static_cast<std::size_t>(operation.slice), static_cast<std::size_t>(operation.slices));
      kernels.push_back(part.size() == 0 ? nullptr
                                         : make_kernel({graph_, operation, mine.begin + part.begin, part.size(),
                                                        buffers_, arenas_, scratch_, masters_, dnnl_, threads_}));
    }
    return programs_.emplace_back(rows, std::move(kernels)).second;
  }

  /// A rank without examples still takes part: its gradients and metric sums are zero.
  void contribute_nothing(const Operation& operation) const {
    if (operation.parameter < 0) return;
    const auto zero = [&](int parameter) {
      const ParameterSpec& spec = graph_.parameters[parameter];
      std::fill_n(arenas_.gradients.data() + spec.offset, spec.storage, 0.0F);
    };
    if (operation.kind == OperationKind::loss) {
      zero(operation.parameter);
      return;
    }
    if (operation.kind <= OperationKind::loss) return;
    const std::size_t count = graph_.layers[operation.layer].parameters.size();
    std::size_t first = 0;
    if (operation.kind == OperationKind::dense_backward) {  // its chunk of the kernel; the bias goes with the first
      const ParameterSpec& kernel = graph_.parameters[operation.parameter];
      const std::int64_t units = kernel.info.shape[1];
      std::fill_n(arenas_.gradients.data() + kernel.offset + operation.rows_begin * units,
                  (operation.rows_end - operation.rows_begin) * units, 0.0F);
      first = operation.rows_begin == 0 ? 1 : count;
    }
    for (std::size_t i = first; i < count; ++i) zero(operation.parameter + static_cast<int>(i));
  }

  [[nodiscard]] const Operation* dense_with_kernel(std::size_t parameter) const {
    for (const Operation& operation : graph_.forward) {
      const bool its_kernel = operation.parameter == static_cast<int>(parameter);
      if (operation.kind == OperationKind::dense && its_kernel) return &operation;
    }
    return nullptr;
  }

  /// (An empty descriptor converts to false in oneDNN 2 and to true in 3.)
  [[nodiscard]] bool is_convolution_kernel(std::size_t parameter) const { return masters_[parameter].get_size() != 0; }

  /// Keras' rows of a Dense kernel follow the flattened input; ours follow the order in which the input lies.
  template <typename Visit>
  void for_each_row(const Operation& dense, Visit visit) const {
    const TensorSpec& input = graph_.tensors[dense.input];
    for (std::int64_t row = 0; row < input.elements(); ++row) {
      visit(static_cast<std::size_t>(row), static_cast<std::size_t>(input.place_of(row)));
    }
  }

  void copy_convolution(std::size_t parameter, float* stored, float* values, bool read) const {
    const LayerInfo* layer = nullptr;
    for (const Operation& operation : graph_.forward) {
      const bool convolution = operation.kind == OperationKind::convolution;
      if (convolution && operation.parameter == static_cast<int>(parameter)) layer = &graph_.layers[operation.layer];
    }
    // A stream of its own: the training thread may be using the other.
    const onednn::Context context{dnnl_.engine, dnnl::stream(dnnl_.engine)};
    const dnnl::memory ours(masters_[parameter], context.engine, stored);
    const dnnl::memory keras(keras_kernel_descriptor(*layer), context.engine, values);
    onednn::reorder(context, read ? ours : keras, read ? keras : ours).run();
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
  std::vector<dnnl::memory::desc> masters_;  ///< of convolution kernels; empty for other parameters
  std::vector<std::pair<std::size_t, Kernels>> programs_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(threads) { omp_set_num_threads(threads); }

  [[nodiscard]] std::string describe() const override {
    return cpu_model() + ", " + std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads") + ", oneDNN " +
           onednn::version();
  }

  [[nodiscard]] std::map<std::string, std::string> libraries() const override {
    return {{"onednn", onednn::version()}};
  }

  void require_bfloat16() const override {
    if (onednn::has_bfloat16()) return;
    throw UsageError("mixed_bfloat16 needs a CPU with AVX-512 BF16 instructions, and this one (" + cpu_model() +
                     ") has none; use --precision float32");
  }

  void lay_out(Graph& graph, std::size_t capacity) const override {
    const std::size_t rows = std::max<std::size_t>(capacity, 1);
    for (TensorSpec& tensor : graph.tensors) tensor.block = tensor.channels;
    graph.cache_bytes = cache_bytes * static_cast<std::size_t>(threads_);
    graph.capacity = rows;
    demand_keras_order(graph);
    choose_layouts(dnnl_, graph, rows);
    for (ParameterSpec& parameter : graph.parameters) {
      parameter.storage = static_cast<std::size_t>(parameter.info.shape.elements());
    }
    for (const Operation& operation : graph.forward) {
      if (operation.kind != OperationKind::convolution || has_nothing(graph, operation)) continue;
      const ConvolutionDescriptors descriptors(dnnl_, graph, operation, rows);
      graph.parameters[operation.parameter].storage = descriptors.master.get_size() / sizeof(float);
    }
  }

  [[nodiscard]] std::unique_ptr<Executable> compile(const Graph& graph, std::vector<Operation> operations,
                                                    const Arenas& arenas, std::size_t capacity) const override {
    return std::make_unique<CpuExecutable>(graph, std::move(operations), arenas, capacity, dnnl_, threads_);
  }

 private:
  /// What only passes a layout on must get Keras' order to give it.
  static void demand_keras_order(Graph& graph) {
    for (auto operation = graph.forward.rbegin(); operation != graph.forward.rend(); ++operation) {
      if (operation->output < 0 || operation->input < 0) continue;
      const TensorSpec& output = graph.tensors[operation->output];
      const bool passes_on = operation->kind != OperationKind::convolution && operation->kind != OperationKind::dense &&
                             operation->kind != OperationKind::finish_sum;
      const bool has_no_layout = output.height * output.width == 1;
      if (!output.keras_order || !passes_on || has_no_layout) continue;
      TensorSpec& input = graph.tensors[operation->input];
      input.keras_order = true;
      if (input.alias >= 0) graph.tensors[input.alias].keras_order = true;
    }
  }

  onednn::Context dnnl_;
  int threads_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace lockstep
