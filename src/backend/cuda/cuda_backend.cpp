// The CUDA backend: finds the GPU, lays everything out in Keras' own order, and cuts plans for a device with a large
// cache and a second stream.
#include "backend/cuda/cuda_executable.hpp"
#include "backend/make_backend.hpp"
#include "core/environment.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <map>
#include <string>
#include <utility>

namespace lockstep {

namespace {

using cuda::check;

constexpr int oldest_capability = 8;  // Ampere: bfloat16, and what the default architectures begin with

std::string version_of(int number, int major_unit, int minor_unit) {
  return std::to_string(number / major_unit) + "." + std::to_string(number % major_unit / minor_unit);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::string name, const cuda::Rules& rules) : name_(std::move(name)), tools_(queue_, rules) {}

  [[nodiscard]] std::string describe() const override {
    const auto versions = libraries();
    return name_ + ", CUDA " + versions.at("cuda") + ", cuDNN " + versions.at("cudnn") +
           (tools_.rules().allow_tf32 ? ", TF32" : "");
  }

  [[nodiscard]] std::map<std::string, std::string> libraries() const override {
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return {{"cuda", version_of(runtime, 1000, 10)},
            {"cudnn", version_of(static_cast<int>(cudnnGetVersion()), 10000, 100)}};
  }

  void require_bfloat16() const override {}  // all devices it takes have it

  /// Alone: few kernels, the optimizer of the large layers beside the backward pass of the small ones. With others:
  /// pieces large enough for NCCL to be at full speed, small enough for sums to begin early.
  [[nodiscard]] PlanOptions plan_options(int ranks) const override {
    constexpr std::size_t uncut = std::size_t{1} << 40U;
    if (ranks == 1) return {.chunk_bytes = uncut, .bucket_bytes = std::size_t{1} << 20U, .update_lag = 0};
    constexpr std::size_t piece = std::size_t{4} << 20U;
    return {.chunk_bytes = piece, .bucket_bytes = piece, .update_lag = 0};
  }

  [[nodiscard]] cuda::DeviceQueue* queue() const noexcept override { return &queue_; }

  void lay_out(Graph& graph, std::size_t /*capacity*/) const override {
    for (TensorSpec& tensor : graph.tensors) tensor.block = tensor.channels;
    for (ParameterSpec& parameter : graph.parameters) {
      parameter.storage = static_cast<std::size_t>(parameter.info.shape.elements());
    }
  }

  [[nodiscard]] std::unique_ptr<Executable> compile(const Graph& graph, std::vector<Operation> operations,
                                                    const Arenas& arenas, std::size_t capacity) const override {
    return std::make_unique<cuda::CudaExecutable>(graph, std::move(operations), arenas, capacity, queue_, tools_);
  }

 private:
  std::string name_;
  mutable cuda::DeviceQueue queue_;  // what is enqueued is no state of the backend's
  cuda::Tools tools_;
};

}  // namespace

bool has_cuda_backend() noexcept { return true; }

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options, std::string& why_not) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorInsufficientDriver) {
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    why_not = "there is no NVIDIA driver, or one older than CUDA " + version_of(runtime, 1000, 10) + " needs";
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
  if (properties.major < oldest_capability) {
    why_not = "the GPU (" + name + ") is of compute capability " + std::to_string(properties.major) + "." +
              std::to_string(properties.minor) + ", and 8.0 is the least";
    return nullptr;
  }
  check(cudaSetDevice(device), "cudaSetDevice");
  return std::make_unique<CudaBackend>(
      name,
      cuda::Rules{.deterministic = options.deterministic,
                  .allow_tf32 = options.allow_tf32,
                  .direct_convolutions = value_of(current_environment(), "LOCKSTEP_CUDA_DIRECT_CONVOLUTIONS") == "1"});
}

}  // namespace lockstep
