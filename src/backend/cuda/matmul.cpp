// See matmul.hpp.
#include "backend/cuda/matmul.hpp"

#include <fmt/format.h>
#include <array>

namespace lockstep::cuda {

namespace {

using Preference = UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr int max_algorithms = 8;
constexpr std::uint32_t largest_alignment = 256;

cudaDataType_t data_type(ElementType type) { return type == ElementType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F; }

/// The largest power of two up to 256 that divides the address. Algorithms may require an alignment.
std::uint32_t alignment_of(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address) | largest_alignment;
  return static_cast<std::uint32_t>(number & (~number + 1));
}

template <typename Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

template <typename Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

cublasLtMatrixLayout_t layout(ElementType type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, data_type(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), stride),
        "cublasLtMatrixLayoutCreate");
  return made;
}

ProblemKey key_of(const MatmulProblem& problem) {
  const auto& [shape, operands] = problem;
  return {shape.m,
          shape.n,
          shape.k,
          shape.transpose_a,
          shape.transpose_b,
          shape.stride_a,
          shape.stride_b,
          shape.stride_d,
          static_cast<std::int64_t>(shape.input),
          static_cast<std::int64_t>(shape.output),
          alignment_of(operands.a),
          alignment_of(operands.b),
          alignment_of(operands.d),
          alignment_of(operands.bias),
          operands.epilogue};
}

}  // namespace

Matmul::Matmul(const CudaContext& cuda_context, const MatmulProblem& problem)
    : cuda_context_(cuda_context), operands_(problem.operands), problem_(key_of(problem)) {
  const auto& [shape, operands] = problem;
  a_.reset(layout(shape.input, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k,
                  shape.stride_a));
  b_.reset(layout(shape.input, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n,
                  shape.stride_b));
  d_.reset(layout(shape.output, shape.m, shape.n, shape.stride_d));
  const bool tf32 = cuda_context.rules().allow_tf32 && shape.input == ElementType::float32;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  description_.reset(description);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, operands.epilogue);
  set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
}

std::vector<MatmulAlgorithm> Matmul::algorithms() const {
  const auto preference = make_handle<Preference>(
      [](auto* handle) { check(cublasLtMatmulPreferenceCreate(handle), "cublasLtMatmulPreferenceCreate"); });
  set(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, cuda_context_.workspace().size());
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(operands_.a));
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(operands_.b));
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(operands_.d));
  set(preference.get(), CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(operands_.d));
  if (cuda_context_.rules().deterministic) {  // excludes in-place reduction, which adds partial sums in any order
    const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    set(preference.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  }
  std::array<cublasLtMatmulHeuristicResult_t, max_algorithms> results{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(cuda_context_.cublas(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                     preference.get(), max_algorithms, results.data(), &found);
  std::vector<MatmulAlgorithm> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int r = 0; r < found; ++r) {
    if (results[r].state != CUBLAS_STATUS_SUCCESS) continue;
    algorithms.push_back({results[r].algo, results[r].workspaceSize});
  }
  return algorithms;
}

void Matmul::enqueue(const cublasLtMatmulAlgo_t& algorithm) const {
  const float one = 1;
  const float zero = 0;
  check(cublasLtMatmul(cuda_context_.cublas(), description_.get(), &one, operands_.a, a_.get(), operands_.b, b_.get(),
                       &zero, operands_.d, d_.get(), operands_.d, d_.get(), &algorithm,
                       cuda_context_.workspace().data(), cuda_context_.workspace().size(), cuda_context_.stream()),
        "cublasLtMatmul");
}

std::string Matmul::name_of(const cublasLtMatmulAlgo_t& algorithm) const {
  int id = 0;
  std::size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return fmt::format("cublaslt:{}{}", id, operands_.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? "" : "+epilogue");
}

}  // namespace lockstep::cuda
