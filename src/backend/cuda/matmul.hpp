// One matrix product on cuBLASLt, its algorithm chosen when it is made. cuBLASLt counts matrices by columns; whoever
// has rows names the transposed product (dense.cpp).
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/tools.hpp"

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::cuda {

/// D[m, n] = op(A)[m, k] op(B)[k, n], all stored by columns.
struct MatmulShape {
  std::int64_t m, n, k;
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t stride_a, stride_b, stride_d;  ///< elements from column to column as stored
  ElementType input = ElementType::float32;   ///< of A and B
  ElementType output = ElementType::float32;
};

struct MatmulOperands {
  const void* a;
  const void* b;
  void* d;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  ///< read or, by a gradient's epilogue, written; of D's type
};

class Matmul {
 public:
  /// Where cuBLASLt has no algorithm with the epilogue, the product is made without it: see `fused`.
  Matmul(const Tools& tools, const MatmulShape& shape, const MatmulOperands& operands);

  void enqueue() const;

  /// True if the epilogue asked for is part of the product.
  [[nodiscard]] bool fused() const noexcept { return fused_; }
  [[nodiscard]] const std::string& implementation() const noexcept { return implementation_; }

 private:
  using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  /// False if there is no algorithm with this epilogue.
  [[nodiscard]] bool choose(const MatmulShape& shape, cublasLtEpilogue_t epilogue);
  [[nodiscard]] ProductChoice measure(cublasLtEpilogue_t epilogue) const;
  [[nodiscard]] float milliseconds_of(const cublasLtMatmulAlgo_t& algorithm) const;
  [[nodiscard]] cublasStatus_t launch(const cublasLtMatmulAlgo_t& algorithm) const;

  const Tools& tools_;
  MatmulOperands operands_;
  Description description_;
  Layout a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool fused_ = false;
  std::string implementation_;
};

}  // namespace lockstep::cuda
