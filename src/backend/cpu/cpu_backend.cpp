// The CPU backend: chooses layouts and the algorithms of convolutions, and says what the CPU can do.
#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/cpu_executable.hpp"
#include "backend/cpu/instruction_set.hpp"
#include "backend/cpu/layouts.hpp"
#include "backend/cpu/normalization_derivatives.hpp"
#include "backend/make_backend.hpp"
#include "core/format_number.hpp"
#include "graph/work.hpp"

#include <lockstep/core/error.hpp>

#include <omp.h>

#include <fmt/format.h>
#include <algorithm>
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

class CpuBackend final : public Backend {
 public:
  /// Work is divided by the number of threads, so OpenMP must give as many: OMP_DYNAMIC would give fewer on a busy
  /// machine, OMP_THREAD_LIMIT always.
  CpuBackend(int threads, std::optional<Layout> layout, Convolutions convolutions, InstructionSet set)
      : instructions_(std::min(set, instruction_set_in_use())),
        kernels_{instructions_, layout, convolutions},
        threads_(std::min(threads, omp_get_thread_limit())) {
    omp_set_dynamic(0);
    omp_set_num_threads(threads_);
  }

  [[nodiscard]] std::string describe() const override {
    const std::string limit = why_instructions_are_limited();
    return fmt::format("{} with {}{}, {}, oneDNN {}", cpu_model(), to_string(instructions_),
                       limit.empty() ? "" : " (" + limit + ")", count_of(threads_, "thread"), onednn::version());
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
          "mixed_bfloat16 is expected to take {:.2g} times as long as float32 on this CPU ({}); use --precision "
          "float32",
          slowdown,
          !limit.empty()                              ? limit
          : instructions_ == InstructionSet::amx_bf16 ? "its kernels leave AMX unused"
                                                      : "it has no matrix instructions for bfloat16"));
    }
    return all;
  }

  void lay_out(Graph& graph, std::size_t examples) const override {
    const std::size_t num_examples = std::max<std::size_t>(examples, 1);
    graph.cache_bytes = cache_bytes * static_cast<std::size_t>(threads_);
    graph.capacity = graph.layout_examples = num_examples;
    choose_layouts(dnnl_, graph, num_examples, kernels_);
    let_normalizations_derive(graph);
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
    return make_cpu_executable(graph, std::move(operations), arenas, capacity, dnnl_, threads_);
  }

 private:
  /// bfloat16 may be slower than float32 by this factor without a warning.
  static constexpr double max_slowdown = 1 / 0.95;

  /// The expected time of a step's kernels, relative to that in float32.
  [[nodiscard]] double expected_slowdown(const Graph& graph) const {
    Graph wide = graph;
    wide.mixed_bfloat16 = false;
    for (TensorSpec& tensor : wide.tensors) tensor.type = ElementType::float32;
    choose_layouts(dnnl_, wide, graph.layout_examples, kernels_);
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
  InstructionSet instructions_;
  KernelOptions kernels_;
  onednn::Context dnnl_;
  int threads_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads, std::optional<Layout> layout, Convolutions convolutions,
                                          InstructionSet set) {
  return std::make_unique<CpuBackend>(threads, layout, convolutions, set);
}

}  // namespace lockstep
