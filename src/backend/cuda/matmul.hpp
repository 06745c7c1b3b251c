// A matrix product on cuBLASLt. cuBLASLt's matrices are column-major, so callers with row-major matrices compute the
// transposed product (dense.cpp).
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/cuda_context.hpp"

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cuda {

/// D[m, n] = op(A)[m, k] op(B)[k, n], all column-major.
struct MatmulShape {
  std::int64_t m, n, k;
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t stride_a, stride_b, stride_d;  ///< leading dimensions: elements from column to column in memory
  ElementType input = ElementType::float32;   ///< of A and B
  ElementType output = ElementType::float32;
};

struct MatmulOperands {
  const void* a;
  const void* b;
  void* d;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  ///< of D's type; a gradient's epilogue writes it, others read it
};

struct MatmulProblem {
  MatmulShape shape;
  MatmulOperands operands;
};

struct MatmulAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;  ///< bytes
};

class Matmul {
 public:
  Matmul(const CudaContext& cuda_context, const MatmulProblem& problem);

  /// What the algorithms depend on.
  [[nodiscard]] const ProblemKey& problem() const noexcept { return problem_; }

  /// What cuBLASLt proposes, in the order of its estimates. Empty if it does not support the product.
  [[nodiscard]] std::vector<MatmulAlgorithm> algorithms() const;

  /// Throws InternalError if the algorithm does not run.
  void enqueue(const cublasLtMatmulAlgo_t& algorithm) const;

  /// The algorithm's name in reports: "cublaslt:11+epilogue".
  [[nodiscard]] std::string name_of(const cublasLtMatmulAlgo_t& algorithm) const;

 private:
  using Description = UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  const CudaContext& cuda_context_;
  MatmulOperands operands_;
  ProblemKey problem_;
  Description description_;
  Layout a_, b_, d_;
};

}  // namespace lockstep::cuda
