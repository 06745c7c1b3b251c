// The runtime's functions for devices, memory, streams and events. Those for graphs are in capture.cpp.
#include "device.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using fake_gpu::Device;
using fake_gpu::Locked;
using fake_gpu::Outcome;
using fake_gpu::Work;

namespace {

int current_device = 0;

/// The number of fake GPUs, from LOCKSTEP_FAKE_GPUS.
int devices() { return std::atoi(fake_gpu::variable("LOCKSTEP_FAKE_GPUS", "1").c_str()); }

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Whether the range is host memory, or one device allocation, as the copy's kind declares.
bool is_side(const void* memory, std::size_t bytes, bool of_device) {
  const auto& device = Device::get().memory();
  return of_device ? device.holds(memory, bytes) : !device.is_device(memory);
}

cudaError_t enqueue_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (bytes == 0) return cudaSuccess;
  if (!is_side(to, bytes, to_device) || !is_side(from, bytes, from_device)) return cudaErrorInvalidValue;
  // Reads the source and writes the target only when the device runs the copy: the latest that CUDA permits.
  return Device::get().enqueue_call(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
}

cudaError_t enqueue_fill(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!is_side(memory, bytes, true)) return cudaErrorInvalidValue;
  return Device::get().enqueue_call(stream, [memory, value, bytes] { std::memset(memory, value, bytes); });
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
  }
  return "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the fake GPU";
}

cudaError_t cudaGetLastError() { return cudaSuccess; }  // every function here returns its own errors

cudaError_t cudaGetDeviceCount(int* count) {
  *count = std::max(devices(), 0);
  if (devices() < 0) return cudaErrorInsufficientDriver;  // simulates a missing driver
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= devices()) return cudaErrorInvalidDevice;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "a fake GPU");
  properties->major = 9;
  properties->multiProcessorCount = 1;
  properties->totalGlobalMem = std::size_t{4} << 30U;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device < 0 || device >= devices()) return cudaErrorInvalidDevice;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device) + 1);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 12000;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const Locked locked;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  *memory = Device::get().memory().allocate(bytes);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* memory) {
  const Locked locked;
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  Device::get().run_until([] { return Device::get().idle(); }, "cudaFree");
  return Device::get().memory().release(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  const Locked locked;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xFF, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  const Locked locked;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  Device::get().run_until([] { return Device::get().idle(); }, "cudaFreeHost");
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  const Locked locked;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  return enqueue_fill(memory, value, bytes, nullptr);  // asynchronous for the host, as for device memory in CUDA
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const Locked locked;
  return enqueue_fill(memory, value, bytes, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const Locked locked;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  const cudaError_t status = enqueue_copy(to, from, bytes, kind, nullptr);
  return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Locked locked;
  return enqueue_copy(to, from, bytes, kind, stream);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::strtoull(fake_gpu::variable("LOCKSTEP_FAKE_GPU_MEMORY", "536870912").c_str(), nullptr, 10);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
  const Locked locked;
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;  // blocking streams are not faked
  *stream = Device::get().add_stream();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Locked locked;
  Device::get().run_until([stream] { return Device::get().idle(stream); }, "cudaStreamDestroy");
  Device::get().remove_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Locked locked;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  Device::get().run_until([stream] { return Device::get().idle(stream); }, "cudaStreamSynchronize");
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const Locked locked;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  Device::get().run_until([] { return Device::get().idle(); }, "cudaDeviceSynchronize");
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const Locked locked;
  const auto& state = event->state;
  if (state->capture) return fake_gpu::wait_in_capture(stream, *state);
  if (stream->capture) {  // the capture would depend on work outside of it
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  return Device::get().enqueue(stream, [state, ticket = state->recorded]() -> Work {
    return [state, ticket] { return state->passed >= ticket ? Outcome::done : Outcome::stuck; };
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st();
  (*event)->state->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Locked locked;
  const auto& state = event->state;
  if (stream != nullptr && stream->capture) {
    state->capture = stream->capture;
    state->nodes = stream->nodes;
    return cudaSuccess;
  }
  state->capture = nullptr;
  const std::uint64_t ticket = ++state->recorded;
  return Device::get().enqueue_call(stream, [state, ticket] {
    state->passed = ticket;
    state->passed_at = seconds();
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Locked locked;
  if (event->state->capture) return cudaErrorCapturedEvent;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  const auto passed = [event] { return event->state->passed >= event->state->recorded; };
  if (passed()) return cudaSuccess;
  Device::get().advance(Device::get().random().below(64));
  return passed() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Locked locked;
  if (event->state->capture) return cudaErrorCapturedEvent;
  if (const cudaError_t refused = fake_gpu::refuse_in_capture()) return refused;
  Device::get().run_until([event] { return event->state->passed >= event->state->recorded; }, "cudaEventSynchronize");
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Locked locked;
  if (!begin->state->timed || !end->state->timed) return cudaErrorInvalidResourceHandle;
  if (begin->state->passed < begin->state->recorded || end->state->passed < end->state->recorded) {
    return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(1000 * (end->state->passed_at - begin->state->passed_at));
  return cudaSuccess;
}
