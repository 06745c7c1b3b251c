// The CPU backend: chooses the layouts that oneDNN prefers, allocates memory for the largest local batch, and creates
// kernels once for each local batch size.
#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/instruction_set.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/layouts.hpp"
#include "backend/cpu/optimizer_step.hpp"
#include "backend/make_backend.hpp"
#include "core/aligned_buffer.hpp"
#include "graph/gradient_ranges.hpp"
#include "graph/work.hpp"

#include <lockstep/core/error.hpp>

#include <omp.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
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

/// The bytes of a microbatch's tensors, per thread. Measured best on Zen 5, whose second-level cache has 1 MiB. Nearby
/// values are equally fast, so the machine's cache size is not queried.
constexpr std::size_t cache_bytes = std::size_t{2560} << 10U;

/// True if this rank's shard of a tensor-parallel layer leaves the operation without input or output channels.
bool is_empty_shard(const Graph& graph, const Operation& operation) {
  const auto empty = [&](int tensor) { return tensor >= 0 && graph.tensors[tensor].elements() == 0; };
  const bool has_bias = is_backward(operation) && traits_of(operation).has_kernel && !operation.is_frozen;
  if (has_bias) return empty(operation.output);  // the bias needs no input
  if (operation.all_to_all) return false;        // other ranks may hold channels
  return empty(operation.input) || empty(operation.output);
}

/// Whether the operation is a convolution whose kernel decides the layout of its weights: a shared layer's first call.
bool is_layout_of_weights_from(const Graph& graph, const Operation& operation) {
  return operation.kind == OperationKind::convolution && operation.shared.index == 0 &&
         !is_empty_shard(graph, operation);
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

  void update_low_precision_copies() override {
    for (const Arenas* arenas : {static_cast<const Arenas*>(&arenas_), arenas_.local}) {
      if (arenas == nullptr) continue;
      for (std::size_t i = 0; i < arenas->low_precision.size(); ++i) {
        arenas->low_precision[i] = BFloat16(arenas->weights[i]).bits;
      }
    }
  }

  [[nodiscard]] std::span<const float> outputs() override {
    const int tensor = graph_.forward.back().input;
    return {reinterpret_cast<const float*>(buffers_[tensor].value),
            capacity_ * static_cast<std::size_t>(graph_.tensors[tensor].elements())};
  }

  [[nodiscard]] std::string implementation(std::size_t operation) override {
    return kernels_for(capacity_)[operation]->implementation();
  }

 private:
  using Kernels = std::vector<std::unique_ptr<Kernel>>;

  void allocate_tensors() {
    buffers_.resize(graph_.tensors.size());
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const TensorSpec& tensor = graph_.tensors[t];
      const std::size_t num_examples = tensor.microbatch_examples > 0 ? tensor.microbatch_examples : capacity_;
      const std::size_t bytes = num_examples * static_cast<std::size_t>(tensor.elements()) * size_of(tensor.type);
      if (tensor.alias < 0) buffers_[t].value = add_buffer(bytes);
      if (tensor.gradient_alias < 0 && t > 0)
        buffers_[t].gradient =
            is_gradient_in_place(graph_, static_cast<int>(t)) ? buffers_[t].value : add_buffer(bytes);
    }
    std::size_t scratch = 0;
    for (const Operation& operation : operations_) {
      if (operation.kind != OperationKind::dense_backward) continue;
      const TensorSpec& output = graph_.tensors[operation.output];
      const auto rows = capacity_ * static_cast<std::size_t>(output.height * output.width);
      scratch = std::max(scratch, rows * operation.input_features.size());
    }
    scratch_ = add_buffer(scratch * sizeof(float));
    separate_gradients_ = reinterpret_cast<float*>(add_buffer(separate_elements(graph_, operations_) * sizeof(float)));
    for (const Operation& operation : graph_.forward) {
      if (operation.output < 0) continue;
      const TensorSpec& output = graph_.tensors[operation.output];
      if (const std::size_t bytes = saved_bytes_per_example(traits_of(operation).saved, output); bytes > 0)
        buffers_[operation.output].saved_for_backward = add_buffer(capacity_ * bytes);
    }
    share_aliases(graph_, buffers_);
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
    for (const Operation& operation : operations_) {
      // slice_of puts larger microbatches first, so the first one, to whose gradients the others add, is never empty.
      const Range examples =
          operation.is_batch_split ? graph_.examples_of(num_examples, graph_.rank) : Range{0, num_examples};
      const Range microbatch = slice_of(examples.size(), operation.microbatch.index, operation.microbatch.count);
      kernels.push_back(
          microbatch.empty()
              ? nullptr
              : make_kernel({{graph_, operation, examples.begin + microbatch.begin, microbatch.size(), buffers_,
                              arenas_, has_separate_gradients(operation) ? separate_gradients_ : nullptr},
                             scratch_,
                             weight_layouts_,
                             converted_weights,
                             dnnl_,
                             threads_}));
    }
    return kernels_by_size_.emplace_back(num_examples, std::move(kernels)).second;
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
  float* separate_gradients_ = nullptr;             ///< see make_shared_layer
  std::vector<dnnl::memory::desc> weight_layouts_;  ///< of convolution kernels; empty for other parameters
  std::vector<std::pair<std::size_t, Kernels>> kernels_by_size_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, std::optional<Layout> layout) : layout_(layout), threads_(threads) {
    omp_set_num_threads(threads);
  }

  [[nodiscard]] std::string describe() const override {
    const std::string limit = why_instructions_are_limited();
    return fmt::format("{} with {}{}, {} thread{}, oneDNN {}", cpu_model(), to_string(instructions_),
                       limit.empty() ? "" : " (" + limit + ")", threads_, threads_ == 1 ? "" : "s", onednn::version());
  }

  [[nodiscard]] std::map<std::string, std::string> libraries() const override {
    return {{"onednn", onednn::version()}};
  }

  [[nodiscard]] std::string instruction_set() const override { return std::string(to_string(instructions_)); }

  void require_bfloat16() const override {
    if (onednn::has_bfloat16()) return;
    const std::string limit = why_instructions_are_limited();
    throw UsageError("mixed_bfloat16 needs a CPU with AVX-512 BF16 instructions, and " +
                     (limit.empty() ? "this one (" + cpu_model() + ") has none" : "here " + limit) +
                     "; use --precision float32");
  }

  [[nodiscard]] std::vector<std::string> warnings(const Graph& graph) const override {
    std::vector<std::string> all;
    if (!graph.mixed_bfloat16) return all;
    if (instructions_ == InstructionSet::amx_bf16) {
      for (const Operation& operation : slow_bfloat16_convolutions(graph)) {
        all.push_back(fmt::format(
            "layer '{}' trains in bfloat16 without this CPU's matrix instructions (AMX), because oneDNN {} has no such "
            "kernel for its shape; `lockstep plan --kernels` lists the kernels",
            graph.layers[operation.layer].name, onednn::version()));
      }
    }
    const double slowdown = expected_slowdown(graph);
    if (slowdown > max_slowdown) {
      const std::string limit = why_instructions_are_limited();
      all.push_back(fmt::format(
          "mixed_bfloat16 is expected to train {:.2g} times slower than float32 on this CPU ({}); use --precision "
          "float32",
          slowdown,
          !limit.empty()                              ? limit
          : instructions_ == InstructionSet::amx_bf16 ? "its kernels leave AMX unused"
                                                      : "it has no matrix instructions for bfloat16"));
    }
    return all;
  }

  [[nodiscard]] std::string instructions() const override { return std::string(to_string(instructions_)); }

  void lay_out(Graph& graph, std::size_t examples) const override {
    const std::size_t num_examples = std::max<std::size_t>(examples, 1);
    graph.cache_bytes = cache_bytes * static_cast<std::size_t>(threads_);
    graph.capacity = graph.layout_examples = num_examples;
    choose_layouts(dnnl_, graph, num_examples, instructions_, layout_);
    for (ParameterSpec& parameter : graph.parameters) {
      parameter.storage = static_cast<std::size_t>(parameter.info.shape.elements());
    }
    for (const Operation& operation : graph.forward) {
      if (!is_layout_of_weights_from(graph, operation)) continue;
      const ConvolutionProblem problem{dnnl_, graph, operation, num_examples, operation.convolution};
      graph.parameters[operation.parameter].storage = weight_layout_of(problem).get_size() / sizeof(float);
    }
  }

  [[nodiscard]] std::unique_ptr<Executable> compile(const Graph& graph, std::vector<Operation> operations,
                                                    const Arenas& arenas, std::size_t capacity) const override {
    return std::make_unique<CpuExecutable>(graph, std::move(operations), arenas, capacity, dnnl_, threads_);
  }

 private:
  /// bfloat16 may be slower than float32 by this factor without a warning.
  static constexpr double max_slowdown = 1 / 0.95;

  /// The expected time of a step's kernels, relative to that in float32. AMD's bfloat16 instructions are always faster.
  [[nodiscard]] double expected_slowdown(const Graph& graph) const {
    if (instructions_ < InstructionSet::amx_bf16 && !has_slow_bfloat16_vectors()) return 0;
    Graph wide = graph;
    wide.mixed_bfloat16 = false;
    for (TensorSpec& tensor : wide.tensors) tensor.type = ElementType::float32;
    choose_layouts(dnnl_, wide, graph.layout_examples, instructions_, layout_);
    const double seconds = expected_nanoseconds(wide, graph.layout_examples, instructions_);
    return seconds > 0 ? expected_nanoseconds(graph, graph.layout_examples, instructions_) / seconds : 0;
  }

  /// The convolutions of bfloat16 that do much of the model's work without AMX.
  [[nodiscard]] static std::vector<Operation> slow_bfloat16_convolutions(const Graph& graph) {
    constexpr double much = 0.1;
    double work = 0;
    for (const Operation& operation : graph.forward) work += multiply_adds_per_example(graph, operation);
    std::vector<Operation> slow;
    for (const Operation& operation : graph.forward) {
      const bool is_blocked = operation.convolution.forward == ConvolutionAlgorithm::direct_blocked;
      const bool is_low =
          operation.kind == OperationKind::convolution && graph.tensors[operation.input].type == ElementType::bfloat16;
      if (is_low && is_blocked && multiply_adds_per_example(graph, operation) > much * work) slow.push_back(operation);
    }
    return slow;
  }

  // Before the context: asks Linux for AMX before oneDNN looks what it may use.
  InstructionSet instructions_ = instruction_set_in_use();
  std::optional<Layout> layout_;
  onednn::Context dnnl_;
  int threads_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads, std::optional<Layout> layout) {
  return std::make_unique<CpuBackend>(threads, layout);
}

}  // namespace lockstep
