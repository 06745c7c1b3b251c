// Dense layers on oneDNN's matmul over row-major memory. Forward is one product, backward one kernel per chunk of input
// features.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/tensor_descriptor.hpp"
#include "core/aligned_buffer.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

namespace {

using dnnl::memory;

struct Matrix {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_stride;
  std::int64_t column_stride;
  memory::data_type type;

  [[nodiscard]] memory::desc descriptor() const { return {{rows, columns}, type, {row_stride, column_stride}}; }
};

std::byte* at(std::byte* base, std::int64_t elements, memory::data_type type) {
  return base + elements * (type == memory::data_type::bf16 ? 2 : 4);
}

class DenseForward final : public Kernel {
 public:
  explicit DenseForward(const KernelScope& scope) : activation_(scope, is_fused(scope.operation.activation)) {
    const TensorSpec& input = scope.input();
    const auto [rows, features, units] = scope.product();
    const int parameter = scope.operation.parameter;
    const bool low = input.type == ElementType::bfloat16;
    const memory::data_type type = data_type_of(input);
    const bool partial = scope.operation.partial_sum.has_value();
    const Matrix src{rows, features, features, 1, type};
    const Matrix weights{features, units, units, 1, type};
    const Matrix dst{rows, units, units, 1, partial ? memory::data_type::f32 : data_type_of(scope.output())};
    const bool biased = scope.has_bias() && !partial;
    const memory::desc bias = biased ? Matrix{1, units, units, 1, memory::data_type::f32}.descriptor() : memory::desc();
    const auto description =
        onednn::matmul(scope.dnnl, src.descriptor(), weights.descriptor(), bias, dst.descriptor(),
                       algorithm_of(partial ? ActivationFunction::linear : scope.operation.activation));
    implementation_ = description.impl_info_str();
    const dnnl::engine& engine = scope.dnnl.engine;
    void* result =
        partial ? scope.weights_gradient(*scope.operation.partial_sum) : scope.value<void>(scope.operation.output);
    void* weights_data = low ? static_cast<void*>(scope.low_precision(parameter)) : scope.weights(parameter);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, memory(src.descriptor(), engine, scope.value<void>(scope.operation.input))},
        {DNNL_ARG_WEIGHTS, memory(weights.descriptor(), engine, weights_data)},
        {DNNL_ARG_DST, memory(dst.descriptor(), engine, result)}};
    if (biased) arguments.push_back({DNNL_ARG_BIAS, memory(bias, engine, scope.weights(parameter + 1))});
    matmul_ = {scope.dnnl, dnnl::matmul(description), std::move(arguments)};
  }

  void run(const StepContext& /*context*/) override {
    matmul_.run();
    activation_.run();
  }
  [[nodiscard]] std::string implementation() const override { return implementation_; }

 private:
  onednn::BoundPrimitive matmul_;
  UnfusedActivation activation_;
  std::string implementation_;
};

/// Backward of one chunk of input features: computes the gradients of its weights and of its input while both are in
/// the cache.
class DenseBackward final : public Kernel {
 public:
  explicit DenseBackward(const KernelScope& scope)
      : rows_(scope.product().rows),
        features_(scope.product().features),
        units_(scope.product().units),
        begin_(static_cast<std::int64_t>(scope.operation.input_features.begin)),
        chunk_(static_cast<std::int64_t>(scope.operation.input_features.size())),
        type_(data_type_of(scope.input())),
        threads_(scope.threads),
        input_activation_(scope.operation.input_activation),
        input_(at(scope.value<std::byte>(scope.operation.input), begin_, type_)) {
    const bool low = scope.input().type == ElementType::bfloat16;
    const int parameter = scope.operation.parameter;
    const dnnl::engine& engine = scope.dnnl.engine;
    output_gradient_ = scope.gradient<std::byte>(scope.operation.output);
    // In mixed precision only the model's last tensor has a float32 gradient. It is small, so each chunk converts it
    // again.
    if (low && scope.output().type == ElementType::float32) {
      converted_ = AlignedBuffer(static_cast<std::size_t>(rows_ * units_) * sizeof(BFloat16));
      convert_from_ = reinterpret_cast<const float*>(output_gradient_);
      output_gradient_ = converted_.data();
    }
    const bool trains = !scope.operation.is_frozen;
    if (trains && begin_ == 0 && scope.has_bias()) {
      bias_gradient_ = scope.weights_gradient(parameter + 1);
    }

    if (chunk_ == 0) return;  // a rank without input features still computes the bias gradient
    const Matrix dst{rows_, units_, units_, 1, type_};
    const memory dst_memory(dst.descriptor(), engine, output_gradient_);
    if (trains) {
      const Matrix input_transposed{chunk_, rows_, 1, features_, type_};
      const Matrix weights_gradient{chunk_, units_, units_, 1, memory::data_type::f32};
      bind(weights_product_, scope, memory(input_transposed.descriptor(), engine, input_), dst_memory,
           memory(weights_gradient.descriptor(), engine, scope.weights_gradient(parameter) + begin_ * units_));
    }

    if (!scope.operation.input_gradient) return;
    in_place_ = is_gradient_in_place(scope.graph, scope.operation.input);
    input_gradient_ = at(scope.gradient<std::byte>(scope.operation.input), begin_, type_);
    std::byte* product = in_place_ ? scope.scratch : input_gradient_;
    product_stride_ = in_place_ ? chunk_ : features_;
    std::byte* weights = low ? reinterpret_cast<std::byte*>(scope.low_precision(parameter))
                             : reinterpret_cast<std::byte*>(scope.weights(parameter));
    const Matrix weights_transposed{units_, chunk_, 1, units_, type_};
    const Matrix input_gradient{rows_, chunk_, product_stride_, 1, type_};
    bind(input_product_, scope, dst_memory,
         memory(weights_transposed.descriptor(), engine, at(weights, begin_ * units_, type_)),
         memory(input_gradient.descriptor(), engine, product));
    product_ = product;
  }

  void run(const StepContext& /*context*/) override {
    if (convert_from_ != nullptr) {
      auto* converted = reinterpret_cast<BFloat16*>(converted_.data());
      for (std::int64_t i = 0; i < rows_ * units_; ++i) converted[i] = convert_from_[i];
    }
    if (bias_gradient_ != nullptr) {
      if (type_ == memory::data_type::bf16) {
        sum_bias_gradient<BFloat16>();
      } else {
        sum_bias_gradient<float>();
      }
    }
    if (weights_product_) weights_product_.run();
    if (!input_product_) return;
    input_product_.run();
    if (input_activation_ == ActivationFunction::linear && !in_place_) return;
    if (type_ == memory::data_type::bf16) {
      derive<BFloat16>();
    } else {
      derive<float>();
    }
  }

  [[nodiscard]] std::string implementation() const override { return implementation_; }

 private:
  void bind(onednn::BoundPrimitive& product, const KernelScope& scope, const memory& left, const memory& right,
            const memory& result) {
    const auto description =
        onednn::matmul(scope.dnnl, left.get_desc(), right.get_desc(), {}, result.get_desc(), dnnl::algorithm::undef);
    implementation_ += (implementation_.empty() ? "" : ", ") + std::string(description.impl_info_str());
    product = {scope.dnnl,
               dnnl::matmul(description),
               {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}}};
  }

  template <typename T>
  void sum_bias_gradient() const {
    const auto* gradient = reinterpret_cast<const T*>(output_gradient_);
    std::fill_n(bias_gradient_, units_, 0.0F);
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t u = 0; u < units_; ++u) bias_gradient_[u] += gradient[r * units_ + u];
    }
  }

  template <typename T>
  void derive() const {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t r = 0; r < rows_; ++r) {
      T* product = reinterpret_cast<T*>(product_) + r * product_stride_;
      T* input = reinterpret_cast<T*>(input_) + r * features_;
      apply_derivative(input_activation_, input, product, static_cast<std::size_t>(chunk_));
      if (in_place_) std::copy_n(product, chunk_, input);
    }
  }

  std::int64_t rows_;
  std::int64_t features_;
  std::int64_t units_;
  std::int64_t begin_;
  std::int64_t chunk_;
  memory::data_type type_;
  int threads_;
  ActivationFunction input_activation_;
  std::byte* input_;
  std::byte* output_gradient_ = nullptr;
  std::byte* input_gradient_ = nullptr;
  std::byte* product_ = nullptr;  ///< the input's gradient before it is multiplied by the activation's derivative
  std::int64_t product_stride_ = 0;
  bool in_place_ = false;
  float* bias_gradient_ = nullptr;
  const float* convert_from_ = nullptr;
  AlignedBuffer converted_;
  onednn::BoundPrimitive weights_product_;
  onednn::BoundPrimitive input_product_;
  std::string implementation_;
};

}  // namespace

bool is_gradient_in_place(const Graph& graph, int tensor) {
  bool dense_reads = false;
  for (const Operation& operation : graph.forward) {
    if (operation.input == tensor) dense_reads = operation.kind == OperationKind::dense;
    if (operation.output == tensor && traits_of(operation).backward_reads_output) return false;
  }
  return dense_reads && graph.tensors[tensor].alias < 0 && !graph.is_input(tensor);
}

std::unique_ptr<Kernel> make_dense(const KernelScope& scope) { return std::make_unique<DenseForward>(scope); }

std::unique_ptr<Kernel> make_dense_backward(const KernelScope& scope) { return std::make_unique<DenseBackward>(scope); }

}  // namespace lockstep
