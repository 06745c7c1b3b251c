// Tests of the fake GPU: mistakes that fail on a GPU must also fail on the fake.
#include "core/cuda/memory.hpp"
#include "support/catch.hpp"

#include <cuda_runtime.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstddef>
#include <vector>

using namespace lockstep::cuda;

namespace {

__global__ void reverse(float* values) {
  __shared__ float kept[64];
  kept[threadIdx.x] = values[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  values[blockIdx.x * blockDim.x + threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

__global__ void set(float* values, float value) { *values = value; }
__global__ void copy(const float* from, float* to) { *to = *from; }

template <typename... Parameters, typename... Arguments>
cudaError_t launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
                   Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

float read(const float* value) {
  float result = 0;
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(cudaMemcpy(&result, value, sizeof result, cudaMemcpyDeviceToHost) == cudaSuccess);
  return result;
}

}  // namespace

TEST_CASE("__syncthreads is a barrier within a block") {
  const Stream stream = make_stream();
  const DeviceBuffer buffer(2 * 64 * sizeof(float));
  std::vector<float> values(128);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  REQUIRE(cudaMemcpyAsync(buffer.data(), values.data(), buffer.size(), cudaMemcpyHostToDevice, stream.get()) ==
          cudaSuccess);
  REQUIRE(launch(stream.get(), 2, 64, reverse, buffer.as<float>()) == cudaSuccess);
  REQUIRE(launch(stream.get(), 1, 1025, reverse, buffer.as<float>()) == cudaErrorInvalidConfiguration);
  CHECK(read(buffer.as<float>()) == 63);
  CHECK(read(buffer.as<float>() + 64) == 127);
}

TEST_CASE("new device memory is NaN and not readable by the host") {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 100) == cudaSuccess);
  CHECK(std::isnan(read(static_cast<float*>(memory))));
  float value = 0;
  CHECK(cudaMemcpy(&value, static_cast<std::byte*>(memory) + 98, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  const pid_t child = fork();
  if (child == 0) {
    (void)std::signal(SIGSEGV, SIG_DFL);
    for (int i = 0; i < 32; ++i) {  // the memory is protected only after some waits
      (void)cudaMemset(memory, 0, 4);
      (void)cudaStreamSynchronize(nullptr);
      value += *static_cast<volatile float*>(memory);
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status != 0);
  REQUIRE(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("streams without an event between them run in any order") {
  const Stream first = make_stream();
  const Stream second = make_stream();
  const DeviceBuffer buffer(2 * sizeof(float));
  auto* from = buffer.as<float>();
  int missed = 0;
  for (int i = 1; i <= 40; ++i) {
    REQUIRE(launch(first.get(), 1, 1, set, from, static_cast<float>(i)) == cudaSuccess);
    REQUIRE(launch(second.get(), 1, 1, copy, from, from + 1) == cudaSuccess);
    missed += read(from + 1) == static_cast<float>(i) ? 0 : 1;
  }
  CHECK(missed > 5);
  CHECK(missed < 35);
}

TEST_CASE("a capture reports what invalidated it") {
  const Stream origin = make_stream();
  const Stream fork = make_stream();
  const Event event = make_event();
  const Event before = make_event();
  const DeviceBuffer buffer(sizeof(float));
  REQUIRE(cudaEventRecord(before.get(), fork.get()) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(origin.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  SECTION("a fork that is not joined") {
    REQUIRE(cudaEventRecord(event.get(), origin.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(fork.get(), event.get(), 0) == cudaSuccess);
    REQUIRE(launch(fork.get(), 1, 1, set, buffer.as<float>(), 1.0F) == cudaSuccess);
    CHECK(cudaStreamEndCapture(origin.get(), &graph) == cudaErrorStreamCaptureUnjoined);
  }
  SECTION("a wait for work from before the capture") {
    CHECK(cudaStreamWaitEvent(origin.get(), before.get(), 0) == cudaErrorStreamCaptureIsolation);
    CHECK(cudaStreamEndCapture(origin.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("a host synchronization") {
    CHECK(cudaStreamSynchronize(origin.get()) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(origin.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("an allocation") {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 1) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(origin.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("no violation") {
    REQUIRE(launch(origin.get(), 1, 1, set, buffer.as<float>(), 5.0F) == cudaSuccess);
    REQUIRE(cudaStreamEndCapture(origin.get(), &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    CHECK(read(buffer.as<float>()) == 0);  // captured work must not run
    REQUIRE(cudaGraphLaunch(executable, origin.get()) == cudaSuccess);
    CHECK(read(buffer.as<float>()) == 5);
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  }
}
