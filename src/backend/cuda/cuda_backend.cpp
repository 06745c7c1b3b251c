// The CUDA backend: finds the GPU, keeps tensors in Keras' layout, and sets plan options for a device with a large
// cache and a communication stream.
#include "backend/cuda/cuda_executable.hpp"
#include "backend/cuda/first_convolution.hpp"
#include "backend/make_backend.hpp"
#include "core/environment.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <array>
#include <map>
#include <string>
#include <utility>

namespace lockstep {

namespace {

using cuda::check;

constexpr int min_capability = 8;  // Ampere: the first with bfloat16, and the oldest default architecture of the build

std::string version_of(int number, int major_unit, int minor_unit) {
  return fmt::format("{}.{}", number / major_unit, number % major_unit / minor_unit);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::string name, const cuda::AlgorithmRules& rules)
      : name_(std::move(name)), cuda_context_(device_streams_, rules) {}

  [[nodiscard]] std::string describe() const override {
    const auto versions = libraries();
    return name_ + ", CUDA " + versions.at("cuda") + ", cuDNN " + versions.at("cudnn") +
           (cuda_context_.rules().allow_tf32 ? ", TF32" : "");
  }

  [[nodiscard]] std::map<std::string, std::string> libraries() const override {
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return {{"cuda", version_of(runtime, 1000, 10)},
            {"cudnn", version_of(static_cast<int>(cudnnGetVersion()), 10000, 100)}};
  }

  void require_bfloat16() const override {}  // all supported devices have it

  /// One rank: few kernels, so that the optimizer of large layers overlaps backward of small ones. Several ranks:
  /// buckets large enough for NCCL's full bandwidth, but small enough for the all-reduces to begin early.
  [[nodiscard]] PlanOptions plan_options(int ranks) const override {
    constexpr std::size_t uncut = std::size_t{1} << 40U;
    if (ranks == 1) return {.chunk_bytes = uncut, .bucket_bytes = std::size_t{1} << 20U, .update_lag = 0};
    constexpr std::size_t bucket_bytes = std::size_t{4} << 20U;
    return {.chunk_bytes = bucket_bytes, .bucket_bytes = bucket_bytes, .update_lag = 0, .ranks = ranks};
  }

  [[nodiscard]] cuda::DeviceStreams* device_streams() const noexcept override { return &device_streams_; }

  void lay_out(Graph& graph, std::size_t examples) const override {
    graph.capacity = graph.layout_examples = examples;
    for (TensorSpec& tensor : graph.tensors) tensor.layout = Layout::nhwc;
    for (ParameterSpec& parameter : graph.parameters) {
      parameter.storage = static_cast<std::size_t>(parameter.info.shape.elements());
    }
    cuda::let_first_convolution_derive(graph);
  }

  [[nodiscard]] std::unique_ptr<Executable> compile(const Graph& graph, std::vector<Operation> operations,
                                                    const Arenas& arenas, std::size_t capacity) const override {
    return std::make_unique<cuda::CudaExecutable>(graph, std::move(operations), arenas, capacity, device_streams_,
                                                  cuda_context_);
  }

 private:
  std::string name_;
  mutable cuda::DeviceStreams device_streams_;  // enqueueing work does not change the backend
  cuda::CudaContext cuda_context_;
};

}  // namespace

bool has_cuda_backend() noexcept { return true; }

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options, std::string& why_not) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorInsufficientDriver) {
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    why_not = "the NVIDIA driver is missing or too old for CUDA " + version_of(runtime, 1000, 10);
    return nullptr;
  }
  if (status != cudaSuccess || devices == 0) {
    why_not = status == cudaSuccess || status == cudaErrorNoDevice ? "no NVIDIA GPU was found"
                                                                   : std::string(cudaGetErrorString(status));
    return nullptr;
  }
  const int device = options.local_rank % devices;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const std::string name = static_cast<const char*>(properties.name);
  if (properties.major < min_capability) {
    why_not = fmt::format("the GPU ({}) has compute capability {}.{}, but at least 8.0 is needed", name,
                          properties.major, properties.minor);
    return nullptr;
  }
  check(cudaSetDevice(device), "cudaSetDevice");
  return std::make_unique<CudaBackend>(
      name, cuda::AlgorithmRules{
                .deterministic = options.deterministic,
                .allow_tf32 = options.allow_tf32,
                .direct_convolutions = value_of(current_environment(), "LOCKSTEP_CUDA_DIRECT_CONVOLUTIONS") == "1"});
}

}  // namespace lockstep
