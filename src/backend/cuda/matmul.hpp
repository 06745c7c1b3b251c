// A matrix product on cuBLASLt, whose constructor chooses the algorithm. cuBLASLt's matrices are column-major, so
// callers with row-major matrices compute the transposed product (dense.cpp).
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/cuda_context.hpp"

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <string>

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

class Matmul {
 public:
  /// If cuBLASLt has no algorithm with the epilogue, the product is computed without it: see `fused`.
  Matmul(const CudaContext& cuda_context, const MatmulShape& shape, const MatmulOperands& operands);

  void enqueue() const;

  /// True if the product includes the requested epilogue.
  [[nodiscard]] bool fused() const noexcept { return fused_; }
  [[nodiscard]] const std::string& implementation() const noexcept { return implementation_; }

 private:
  using Description = UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  /// Returns false if there is no algorithm with this epilogue.
  [[nodiscard]] bool choose(const MatmulShape& shape, cublasLtEpilogue_t epilogue);
  [[nodiscard]] CublasLtMatmulAlgorithm measure(cublasLtEpilogue_t epilogue) const;
  [[nodiscard]] float milliseconds_of(const cublasLtMatmulAlgo_t& algorithm) const;
  [[nodiscard]] cublasStatus_t launch(const cublasLtMatmulAlgo_t& algorithm) const;

  const CudaContext& cuda_context_;
  MatmulOperands operands_;
  Description description_;
  Layout a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool fused_ = false;
  std::string implementation_;
};

}  // namespace lockstep::cuda
