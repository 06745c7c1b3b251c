// cuBLASLt's matrix products, computed by oneDNN. Accepts what the cuBLAS documentation lists for cublasLtMatmul
// (tables of "supported data types", cublasLtEpilogue_t). With LOCKSTEP_FAKE_GPU_LIBRARIES=minimal it lacks the
// epilogues that Lockstep does not need.
#include "device.hpp"
#include "numbers.hpp"

#include "include/cublasLt.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  cudaDataType_t scale = CUDA_R_32F;
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};

struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = 7;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  // of A, B, C, D
};

namespace {

using fake_gpu::Device;
using Layout = cublasLtMatrixLayoutOpaque_t;

constexpr std::size_t split_workspace = 4096;

/// Fields of cublasLtMatmulAlgo_t: what the heuristic proposed the algorithm for.
enum AlgorithmField {
  algorithm_id,
  workspace_needed,
  alignment_a,
  alignment_b,
  alignment_c,
  alignment_d,
  alignment_bias
};
enum Id { whole = 11, split = 22, broken = 33 };

struct Operand {
  const void* memory;
  Layout layout;
};

struct Product {
  cublasLtMatmulDescOpaque_t description;
  Operand a, b, c, d;
  float alpha, beta;
  bool splits;

  [[nodiscard]] std::size_t m() const { return d.layout.rows; }
  [[nodiscard]] std::size_t n() const { return d.layout.columns; }
  [[nodiscard]] std::size_t k() const {
    return description.transpose_a == CUBLAS_OP_N ? a.layout.columns : a.layout.rows;
  }
};

std::vector<float> load(const Operand& operand) {
  const Layout& layout = operand.layout;
  std::vector<float> values(layout.rows * layout.columns);
  for (std::size_t column = 0; column < layout.columns; ++column) {
    for (std::size_t row = 0; row < layout.rows; ++row) {
      values[column * layout.rows + row] = fake_gpu::number(operand.memory, layout.type == CUDA_R_16BF,
                                                            column * static_cast<std::size_t>(layout.stride) + row);
    }
  }
  return values;
}

/// d = op(a) op(b) over [k_begin, k_end). cuBLAS is column-major; oneDNN computes the transposed product row-major.
void multiply(const Product& p, const float* a, const float* b, std::size_t k_begin, std::size_t k_end, float beta,
              float* d) {
  const auto stride_a = static_cast<dnnl_dim_t>(p.a.layout.rows);
  const auto stride_b = static_cast<dnnl_dim_t>(p.b.layout.rows);
  const bool ta = p.description.transpose_a == CUBLAS_OP_T;
  const bool tb = p.description.transpose_b == CUBLAS_OP_T;
  const float* from_a = a + (ta ? k_begin : k_begin * p.a.layout.rows);
  const float* from_b = b + (tb ? k_begin * p.b.layout.rows : k_begin);
  const auto m = static_cast<dnnl_dim_t>(p.m());
  dnnl_sgemm(tb ? 'T' : 'N', ta ? 'T' : 'N', static_cast<dnnl_dim_t>(p.n()), m,
             static_cast<dnnl_dim_t>(k_end - k_begin), 1.0F, from_b, stride_b, from_a, stride_a, beta, d, m);
}

void compute(const Product& p) {
  const std::vector<float> a = load(p.a);
  const std::vector<float> b = load(p.b);
  std::vector<float> product(p.m() * p.n());
  const std::size_t middle = p.splits ? p.k() / 2 : 0;
  if (middle > 0) multiply(p, a.data(), b.data(), 0, middle, 0, product.data());
  multiply(p, a.data(), b.data(), middle, p.k(), middle > 0 ? 1 : 0, product.data());

  const bool low = p.d.layout.type == CUDA_R_16BF;
  const std::uint32_t epilogue = p.description.epilogue;
  const bool adds = epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  const bool cuts = epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  for (std::size_t column = 0; column < p.n(); ++column) {
    for (std::size_t row = 0; row < p.m(); ++row) {
      const std::size_t at = column * static_cast<std::size_t>(p.d.layout.stride) + row;
      float value = p.alpha * product[column * p.m() + row];
      if (p.beta != 0) value += p.beta * fake_gpu::number(p.c.memory, low, at);
      if (adds) value += fake_gpu::number(p.description.bias, low, row);
      if (cuts) value = value > 0 ? value : 0;
      fake_gpu::set_number(const_cast<void*>(p.d.memory), low, at, value);
    }
  }
  if (epilogue != CUBLASLT_EPILOGUE_BGRADA) return;
  for (std::size_t row = 0; row < p.m(); ++row) {  // A summed over k
    float sum = 0;
    for (std::size_t k = 0; k < p.k(); ++k) {
      sum += p.description.transpose_a == CUBLAS_OP_N ? a[k * p.a.layout.rows + row] : a[row * p.a.layout.rows + k];
    }
    fake_gpu::set_number(p.description.bias, low, row, sum);
  }
}

std::size_t bytes_of(const Layout& layout) {
  const std::size_t elements = (layout.columns - 1) * static_cast<std::size_t>(layout.stride) + layout.rows;
  return elements * fake_gpu::size_of(layout.type == CUDA_R_16BF);
}

/// Checks that the shapes match.
cublasStatus_t check(const cublasLtMatmulDescOpaque_t& description, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (layout->rows == 0 || layout->columns == 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (layout->stride < static_cast<std::int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool ta = description.transpose_a == CUBLAS_OP_T;
  const bool tb = description.transpose_b == CUBLAS_OP_T;
  const bool fit = (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
                   (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows) && c.rows == d.rows && c.columns == d.columns;
  if (!fit) return CUBLAS_STATUS_INVALID_VALUE;
  const bool known = a.type == b.type && c.type == d.type && (d.type == a.type || d.type == CUDA_R_32F);
  if (!known || description.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  const std::uint32_t epilogue = description.epilogue;
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_RELU && description.bias == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (fake_gpu::minimal() && (epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_RELU ||
                              (epilogue != CUBLASLT_EPILOGUE_DEFAULT && a.type == CUDA_R_16BF))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t alignment_of(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address) | 256U;
  return number & (~number + 1);
}

template <typename To>
cublasStatus_t read_attribute(To& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "an error of the fake cuBLASLt";
}

std::size_t cublasLtGetVersion() { return 120000; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t /*compute*/,
                                        cudaDataType_t scale) {
  *made = new cublasLtMatmulDescOpaque_t;
  (*made)->scale = scale;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return read_attribute(description->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return read_attribute(description->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return read_attribute(description->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return read_attribute(description->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  *made = new Layout{type, rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return read_attribute(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return read_attribute(preference->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return read_attribute(preference->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return read_attribute(preference->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return read_attribute(preference->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return read_attribute(preference->alignment[3], value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int max_results,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  const cublasStatus_t status = check(*description, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool may_split = (preference->schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  for (const Id id : {broken, split, whole}) {
    const std::size_t needed = id == split ? split_workspace : 0;
    if (*found == max_results || needed > preference->workspace || (id == split && !may_split)) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    result.state = id == broken ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    result.workspaceSize = needed;
    result.algo.data[algorithm_id] = id;
    result.algo.data[workspace_needed] = needed;
    for (std::size_t i = 0; i < 4; ++i) result.algo.data[alignment_a + i] = preference->alignment[i];
    result.algo.data[alignment_bias] = alignment_of(description->bias);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    std::size_t bytes, std::size_t* written) {
  const auto id = static_cast<std::int32_t>(algorithm->data[algorithm_id]);
  if (attribute != CUBLASLT_ALGO_CONFIG_ID || bytes != sizeof id) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &id, sizeof id);
  *written = sizeof id;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  const fake_gpu::Locked locked;
  const cublasStatus_t status = check(*description, *a_layout, *b_layout, *c_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto& promised = algorithm->data;
  const std::array<const void*, 5> operands{a, b, c, d, description->bias};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (alignment_of(operands[i]) < promised[alignment_a + i]) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::size_t needed = promised[workspace_needed];
  auto& memory = Device::get().memory();
  const bool room = needed == 0 || (workspace_bytes >= needed && alignment_of(workspace) == 256 &&
                                    memory.holds(workspace, workspace_bytes));
  const bool held = memory.holds(a, bytes_of(*a_layout)) && memory.holds(b, bytes_of(*b_layout)) &&
                    memory.holds(d, bytes_of(*d_layout));
  if (!room || !held) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{*description,
                        {a, *a_layout},
                        {b, *b_layout},
                        {c, *c_layout},
                        {d, *d_layout},
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta),
                        promised[algorithm_id] == split};
  const cudaError_t enqueued = Device::get().enqueue_call(stream, [product, workspace, needed] {
    if (needed > 0) std::memset(workspace, 0xFF, needed);
    compute(product);
  });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
