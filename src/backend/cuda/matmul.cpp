// See matmul.hpp.
#include "backend/cuda/matmul.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <limits>
#include <span>

namespace lockstep::cuda {

namespace {

using Preference = UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr int candidates = 8;
constexpr int timed_runs = 5;
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

}  // namespace

Matmul::Matmul(const CudaContext& cuda_context, const MatmulShape& shape, const MatmulOperands& operands)
    : cuda_context_(cuda_context),
      operands_(operands),
      a_(layout(shape.input, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k,
                shape.stride_a)),
      b_(layout(shape.input, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n,
                shape.stride_b)),
      d_(layout(shape.output, shape.m, shape.n, shape.stride_d)) {
  const bool tf32 = cuda_context.rules().allow_tf32 && shape.input == ElementType::float32;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  description_.reset(description);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  fused_ = choose(shape, operands.epilogue);
  if (!fused_ && !choose(shape, CUBLASLT_EPILOGUE_DEFAULT)) {
    fail("cublasLtMatmulAlgoGetHeuristic",
         fmt::format("no algorithm for a product of {} x {} x {}", shape.m, shape.n, shape.k));
  }
}

bool Matmul::choose(const MatmulShape& shape, cublasLtEpilogue_t epilogue) {
  set(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  void* const bias = epilogue == CUBLASLT_EPILOGUE_DEFAULT ? nullptr : operands_.bias;
  set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);

  const ProblemKey problem{shape.m,
                           shape.n,
                           shape.k,
                           shape.transpose_a,
                           shape.transpose_b,
                           shape.stride_a,
                           shape.stride_b,
                           shape.stride_d,
                           static_cast<std::int64_t>(shape.input),
                           static_cast<std::int64_t>(shape.output),
                           alignment_of(operands_.a),
                           alignment_of(operands_.b),
                           alignment_of(operands_.d),
                           alignment_of(bias),
                           epilogue};
  const CublasLtMatmulAlgorithm& choice =
      cuda_context_.matmul_algorithms().get_or_choose(problem, [&] { return measure(epilogue); });
  if (!choice.exists) return false;
  algorithm_ = choice.algorithm;
  int id = 0;
  std::size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm_, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  implementation_ = fmt::format("cublaslt:{}{}", id, epilogue == CUBLASLT_EPILOGUE_DEFAULT ? "" : "+epilogue");
  return true;
}

/// The fastest of the algorithms that cuBLASLt proposes; in deterministic runs its first proposal.
CublasLtMatmulAlgorithm Matmul::measure(cublasLtEpilogue_t epilogue) const {
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
  std::array<cublasLtMatmulHeuristicResult_t, candidates> results{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(cuda_context_.cublas(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                     preference.get(), candidates, results.data(), &found);
  const bool optional = epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (optional && status != CUBLAS_STATUS_SUCCESS)) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic");

  CublasLtMatmulAlgorithm choice;
  std::size_t needed = 0;
  float best = std::numeric_limits<float>::infinity();
  for (int c = 0; c < found; ++c) {
    if (results[c].state != CUBLAS_STATUS_SUCCESS) continue;
    // cuBLASLt sorts by estimated time. Measured times may have a different order.
    const float time = cuda_context_.rules().deterministic ? static_cast<float>(c) : milliseconds_of(results[c].algo);
    if (time >= best) continue;
    best = time;
    choice = {true, results[c].algo};
    needed = results[c].workspaceSize;
  }
  cuda_context_.workspace().require(needed);
  return choice;
}

void Matmul::enqueue() const { check(launch(algorithm_), "cublasLtMatmul"); }

/// Infinite if the algorithm does not run.
float Matmul::milliseconds_of(const cublasLtMatmulAlgo_t& algorithm) const {
  const Event begin = make_timed_event();
  const Event end = make_timed_event();
  if (launch(algorithm) != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<float>::infinity();
  check(cudaEventRecord(begin.get(), cuda_context_.stream()), "cudaEventRecord");
  for (int run = 0; run < timed_runs; ++run) check(launch(algorithm), "cublasLtMatmul");
  check(cudaEventRecord(end.get(), cuda_context_.stream()), "cudaEventRecord");
  check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
  return milliseconds;
}

cublasStatus_t Matmul::launch(const cublasLtMatmulAlgo_t& algorithm) const {
  const float one = 1;
  const float zero = 0;
  return cublasLtMatmul(cuda_context_.cublas(), description_.get(), &one, operands_.a, a_.get(), operands_.b, b_.get(),
                        &zero, operands_.d, d_.get(), operands_.d, d_.get(), &algorithm,
                        cuda_context_.workspace().data(), cuda_context_.workspace().size(), cuda_context_.stream());
}

}  // namespace lockstep::cuda
