// cuDNN's convolutions of channels-last images and kernels, computed as products of image patches by oneDNN. Accepts
// what the cuDNN API reference allows (cudnnConvolutionForward, ...BiasActivationForward, ...BackwardFilter,
// ...BackwardData). With LOCKSTEP_FAKE_GPU_LIBRARIES=minimal it has no algorithm for one or three channels and no fused
// kernel. This is one file because all functions share the shapes, the workspaces and the choice of algorithms.
#include "device.hpp"
#include "numbers.hpp"

#include "include/cudnn.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  cudnnTensorFormat_t format;
  cudnnDataType_t type;
  int n, c, h, w;
};
struct cudnnFilterStruct : cudnnTensorStruct {};  // n: filters
struct cudnnConvolutionStruct {
  int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
  cudnnConvolutionMode_t mode;
  cudnnMathType_t math;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode;
};

namespace {

using fake_gpu::Device;
using Shape = cudnnTensorStruct;

constexpr std::size_t some_workspace = 4096;
constexpr std::size_t too_much_workspace = std::size_t{1} << 40U;

bool is_low(const Shape& shape) { return shape.type == CUDNN_DATA_BFLOAT16; }
std::size_t pixels_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.h) * static_cast<std::size_t>(shape.w);
}
std::size_t count_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.n) * static_cast<std::size_t>(shape.c) * pixels_of(shape);
}

std::vector<float> load(const Shape& shape, const void* memory) {
  std::vector<float> values(count_of(shape));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = fake_gpu::number(memory, is_low(shape), i);
  return values;
}

void store(const Shape& shape, void* memory, const std::vector<float>& values, float alpha, float beta) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = alpha * values[i];
    if (beta != 0) value += beta * fake_gpu::number(memory, is_low(shape), i);
    fake_gpu::set_number(memory, is_low(shape), i, value);
  }
}

/// The three shapes of a convolution.
struct Shapes {
  Shape x, w, y;
  cudnnConvolutionStruct conv;

  [[nodiscard]] cudnnStatus_t check() const {
    const auto size = [](int input, int kernel, int pad, int stride, int dilation) {
      return 1 + (input + 2 * pad - ((kernel - 1) * dilation + 1)) / stride;
    };
    for (const Shape& shape : {x, w, y}) {
      if (shape.n <= 0 || shape.c <= 0 || shape.h <= 0 || shape.w <= 0) return CUDNN_STATUS_BAD_PARAM;
      if (shape.format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_NOT_SUPPORTED;
      if (shape.type != x.type) return CUDNN_STATUS_BAD_PARAM;
    }
    const bool fit = x.n == y.n && x.c == w.c && w.n == y.c &&
                     y.h == size(x.h, w.h, conv.pad_h, conv.stride_h, conv.dilation_h) &&
                     y.w == size(x.w, w.w, conv.pad_w, conv.stride_w, conv.dilation_w);
    if (!fit) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    if (conv.mode != CUDNN_CROSS_CORRELATION) return CUDNN_STATUS_NOT_SUPPORTED;
    return CUDNN_STATUS_SUCCESS;
  }

  [[nodiscard]] std::size_t patch() const { return pixels_of(w) * static_cast<std::size_t>(w.c); }

  /// Calls visit(image offset, patch offset, channels) for each kernel cell that covers a pixel of the image.
  template <typename Visit>
  void visit(Visit visit) const {
    const auto channels = static_cast<std::size_t>(x.c);
    for (int row = 0; row < y.h; ++row) {
      for (int column = 0; column < y.w; ++column) {
        for (int r = 0; r < w.h; ++r) {
          for (int s = 0; s < w.w; ++s) {
            const int h = row * conv.stride_h - conv.pad_h + r * conv.dilation_h;
            const int v = column * conv.stride_w - conv.pad_w + s * conv.dilation_w;
            if (h < 0 || h >= x.h || v < 0 || v >= x.w) continue;
            const auto pixel = static_cast<std::size_t>(h * x.w + v);
            const auto cell = static_cast<std::size_t>((row * y.w + column) * w.h * w.w + r * w.w + s);
            visit(pixel * channels, cell * channels, channels);
          }
        }
      }
    }
  }

  /// Extracts an image's patches: [output pixel][kernel cell][channel].
  void take_patches(const float* image, std::vector<float>& patches) const {
    patches.assign(pixels_of(y) * patch(), 0.0F);
    visit([&](std::size_t from, std::size_t to, std::size_t count) {
      for (std::size_t c = 0; c < count; ++c) patches[to + c] = image[from + c];
    });
  }
};

void multiply(char ta, char tb, std::size_t m, std::size_t n, std::size_t k, const float* a, std::size_t stride_a,
              const float* b, std::size_t stride_b, float beta, float* c) {
  const auto size = [](std::size_t number) { return static_cast<dnnl_dim_t>(number); };
  dnnl_sgemm(ta, tb, size(m), size(n), size(k), 1.0F, a, size(stride_a), b, size(stride_b), beta, c, size(n));
}

std::vector<float> forward(const Shapes& s, const void* x, const void* w) {
  const std::vector<float> images = load(s.x, x);
  const std::vector<float> kernel = load(s.w, w);
  const auto filters = static_cast<std::size_t>(s.w.n);
  const std::size_t image = count_of(s.x) / static_cast<std::size_t>(s.x.n);
  std::vector<float> result(count_of(s.y));
  std::vector<float> patches;
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.x.n); ++i) {
    s.take_patches(images.data() + i * image, patches);
    multiply('N', 'T', pixels_of(s.y), filters, s.patch(), patches.data(), s.patch(), kernel.data(), s.patch(), 0,
             result.data() + i * pixels_of(s.y) * filters);
  }
  return result;
}

/// A non-deterministic algorithm sums over the images in a random order.
std::vector<float> backward_filter(const Shapes& s, const void* x, const void* dy, bool deterministic) {
  const std::vector<float> images = load(s.x, x);
  const std::vector<float> gradient = load(s.y, dy);
  const auto filters = static_cast<std::size_t>(s.w.n);
  const std::size_t image = count_of(s.x) / static_cast<std::size_t>(s.x.n);
  std::vector<float> result(count_of(s.w), 0.0F);
  std::vector<float> patches;
  const auto count = static_cast<std::size_t>(s.x.n);
  const std::size_t first = deterministic ? 0 : Device::get().random().below(static_cast<std::uint32_t>(count));
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = (first + k) % count;
    s.take_patches(images.data() + i * image, patches);
    multiply('T', 'N', filters, s.patch(), pixels_of(s.y), gradient.data() + i * pixels_of(s.y) * filters, filters,
             patches.data(), s.patch(), 1, result.data());
  }
  return result;
}

std::vector<float> backward_data(const Shapes& s, const void* w, const void* dy) {
  const std::vector<float> kernel = load(s.w, w);
  const std::vector<float> gradient = load(s.y, dy);
  const auto filters = static_cast<std::size_t>(s.w.n);
  const std::size_t image = count_of(s.x) / static_cast<std::size_t>(s.x.n);
  std::vector<float> result(count_of(s.x), 0.0F);
  std::vector<float> patches(pixels_of(s.y) * s.patch());
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.x.n); ++i) {
    multiply('N', 'N', pixels_of(s.y), s.patch(), filters, gradient.data() + i * pixels_of(s.y) * filters, filters,
             kernel.data(), s.patch(), 0, patches.data());
    s.visit([&](std::size_t to, std::size_t from, std::size_t channels) {
      for (std::size_t c = 0; c < channels; ++c) result[i * image + to + c] += patches[from + c];
    });
  }
  return result;
}

/// "minimal" lacks only odd channel counts up to 3, because Lockstep's own kernels are slow on this fake.
bool has_algorithm(const Shapes& shapes) { return !fake_gpu::minimal() || shapes.x.c % 2 == 0 || shapes.x.c > 4; }

bool holds(const Shape& shape, const void* memory) {
  return Device::get().memory().holds(memory, count_of(shape) * fake_gpu::size_of(is_low(shape)));
}

struct Workspace {
  void* memory;
  std::size_t bytes;
};

/// Algorithm 1 of each kind needs a workspace and leaves garbage in it.
template <typename Call>
cudnnStatus_t enqueue(cudnnHandle_t handle, int algorithm, Workspace workspace, Call call) {
  const std::size_t needed = algorithm == 1 ? some_workspace : 0;
  if (needed > 0 && (workspace.bytes < needed || !Device::get().memory().holds(workspace.memory, workspace.bytes))) {
    return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  }
  const cudaError_t status = Device::get().enqueue_call(handle->stream, [call, workspace, needed] {
    if (needed > 0) std::memset(workspace.memory, 0xFF, needed);
    call();
  });
  return status == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

/// The results of Get: an algorithm that needs too much workspace, one that fails, and working ones.
template <typename Performance, typename Algorithm>
cudnnStatus_t propose(const Shapes& shapes, bool first_is_deterministic, int max_results, int* found,
                      Performance* results) {
  *found = 0;
  const cudnnStatus_t status = shapes.check();
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!has_algorithm(shapes)) return CUDNN_STATUS_NOT_SUPPORTED;
  const auto add = [&](int algorithm, cudnnStatus_t state, std::size_t memory, bool deterministic) {
    if (*found == max_results) return;
    Performance& result = results[(*found)++];
    result = {};
    result.algo = static_cast<Algorithm>(algorithm);
    result.status = state;
    result.time = state == CUDNN_STATUS_SUCCESS ? 1.0F : -1.0F;
    result.memory = memory;
    result.determinism = deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
  };
  add(1, CUDNN_STATUS_SUCCESS, too_much_workspace, true);
  add(0, CUDNN_STATUS_SUCCESS, 0, first_is_deterministic);
  add(1, CUDNN_STATUS_SUCCESS, some_workspace, true);
  add(0, CUDNN_STATUS_NOT_SUPPORTED, 0, false);
  return CUDNN_STATUS_SUCCESS;
}

float scalar(const void* value) { return *static_cast<const float*>(value); }

template <typename Descriptor>
cudnnStatus_t make(Descriptor** made) {
  *made = new Descriptor{};
  return CUDNN_STATUS_SUCCESS;
}

template <typename Descriptor>
cudnnStatus_t destroy(Descriptor* descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

std::size_t cudnnGetVersion() { return 90000; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "an error of the fake cuDNN";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return make(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) { return make(made); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) { return destroy(descriptor); }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  *descriptor = {format, type, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* made) { return make(made); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) { return destroy(descriptor); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  *descriptor = {{format, type, k, c, h, w}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* made) { return make(made); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) { return destroy(descriptor); }
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (pad_h < 0 || pad_w < 0 || stride_h <= 0 || stride_w <= 0 || dilation_h <= 0 || dilation_w <= 0) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (compute != CUDNN_DATA_FLOAT) return CUDNN_STATUS_NOT_SUPPORTED;
  *descriptor = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, mode, CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math) {
  descriptor->math = math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* made) { return make(made); }
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t descriptor) { return destroy(descriptor); }
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t descriptor, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t /*nan*/, double /*coefficient*/) {
  *descriptor = {mode};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t /*handle*/, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                                     cudnnTensorDescriptor_t y, int max_results, int* found,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return propose<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>({*x, *w, *y, *conv}, true, max_results,
                                                                           found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t /*handle*/, cudnnTensorDescriptor_t x,
                                                            cudnnTensorDescriptor_t dy,
                                                            cudnnConvolutionDescriptor_t conv,
                                                            cudnnFilterDescriptor_t dw, int max_results, int* found,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return propose<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>({*x, *dw, *dy, *conv}, false,
                                                                                       max_results, found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t /*handle*/, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t conv,
                                                          cudnnTensorDescriptor_t dx, int max_results, int* found,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return propose<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>({*dx, *w, *dy, *conv}, false,
                                                                                   max_results, found, results);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_shape,
                                      const void* x, cudnnFilterDescriptor_t w_shape, const void* w,
                                      cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, std::size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t y_shape, void* y) {
  const fake_gpu::Locked locked;
  const Shapes shapes{*x_shape, *w_shape, *y_shape, *conv};
  if (const cudnnStatus_t status = shapes.check()) return status;
  if (!has_algorithm(shapes)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!holds(shapes.x, x) || !holds(shapes.w, w) || !holds(shapes.y, y)) return CUDNN_STATUS_BAD_PARAM;
  return enqueue(handle, algorithm, {workspace, workspace_bytes},
                 [=, a = scalar(alpha), b = scalar(beta)] { store(shapes.y, y, forward(shapes, x, w), a, b); });
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, cudnnTensorDescriptor_t x_shape, const void* x,
    cudnnFilterDescriptor_t w_shape, const void* w, cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t workspace_bytes, const void* alpha2,
    cudnnTensorDescriptor_t z_shape, const void* z, cudnnTensorDescriptor_t bias_shape, const void* bias,
    cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t y_shape, void* y) {
  const fake_gpu::Locked locked;
  const Shapes shapes{*x_shape, *w_shape, *y_shape, *conv};
  if (const cudnnStatus_t status = shapes.check()) return status;
  if (fake_gpu::minimal()) return CUDNN_STATUS_NOT_SUPPORTED;
  const Shape& b = *bias_shape;
  const bool fits = b.n == 1 && b.c == y_shape->c && b.h == 1 && b.w == 1 && z_shape->n == y_shape->n &&
                    z_shape->c == y_shape->c && z_shape->h == y_shape->h && z_shape->w == y_shape->w;
  const bool held = holds(shapes.x, x) && holds(shapes.w, w) && holds(shapes.y, y) && holds(b, bias) && x != y;
  if (!fits || !held || scalar(alpha2) != 0 || z == nullptr) return CUDNN_STATUS_BAD_PARAM;
  // "Only the CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM algo is enabled with CUDNN_ACTIVATION_IDENTITY."
  const bool cuts = activation->mode == CUDNN_ACTIVATION_RELU;
  if (!cuts && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) return CUDNN_STATUS_NOT_SUPPORTED;
  return enqueue(handle, algorithm, {workspace, workspace_bytes}, [=, shape = b, alpha = scalar(alpha1)] {
    std::vector<float> values = forward(shapes, x, w);
    const std::vector<float> added = load(shape, bias);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float value = alpha * values[i] + added[i % added.size()];
      values[i] = cuts && !(value > 0) ? 0 : value;
    }
    store(shapes.y, y, values, 1, 0);
  });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_shape,
                                             const void* x, cudnnTensorDescriptor_t dy_shape, const void* dy,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t workspace_bytes, const void* beta,
                                             cudnnFilterDescriptor_t dw_shape, void* dw) {
  const fake_gpu::Locked locked;
  const Shapes shapes{*x_shape, *dw_shape, *dy_shape, *conv};
  if (const cudnnStatus_t status = shapes.check()) return status;
  if (!has_algorithm(shapes)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!holds(shapes.x, x) || !holds(shapes.y, dy) || !holds(shapes.w, dw)) return CUDNN_STATUS_BAD_PARAM;
  return enqueue(handle, algorithm, {workspace, workspace_bytes}, [=, a = scalar(alpha), b = scalar(beta)] {
    store(shapes.w, dw, backward_filter(shapes, x, dy, algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1), a, b);
  });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_shape,
                                           const void* w, cudnnTensorDescriptor_t dy_shape, const void* dy,
                                           cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void* workspace, std::size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx_shape, void* dx) {
  const fake_gpu::Locked locked;
  const Shapes shapes{*dx_shape, *w_shape, *dy_shape, *conv};
  if (const cudnnStatus_t status = shapes.check()) return status;
  if (!has_algorithm(shapes)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!holds(shapes.w, w) || !holds(shapes.y, dy) || !holds(shapes.x, dx)) return CUDNN_STATUS_BAD_PARAM;
  return enqueue(handle, algorithm, {workspace, workspace_bytes},
                 [=, a = scalar(alpha), b = scalar(beta)] { store(shapes.x, dx, backward_data(shapes, w, dy), a, b); });
}
