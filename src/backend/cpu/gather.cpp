// The first operation of a step: copies this rank's examples from the in-memory dataset and scales them.
#include "backend/cpu/kernel.hpp"
#include "core/vector_width.hpp"

namespace lockstep {

namespace {

struct Scaling {
  float byte_divisor;
  float scale;
  float offset;

  [[nodiscard]] float operator()(std::uint8_t byte) const {
    return static_cast<float>(byte) / byte_divisor * scale + offset;
  }
  [[nodiscard]] float operator()(float x) const { return x * scale + offset; }
};

Scaling scaling_of(const GraphInput& input) {
  return {input.byte_divisor(), static_cast<float>(input.scale), static_cast<float>(input.offset)};
}

void convert(const std::uint8_t* from, float* to, std::int64_t count, Scaling scaled) {
  run_vectorized([=] {
    for (std::int64_t i = 0; i < count; ++i) to[i] = scaled(from[i]);
  });
}
void convert(const std::uint8_t* from, BFloat16* to, std::int64_t count, Scaling scaled) {
  run_vectorized([=] {
    for (std::int64_t i = 0; i < count; ++i) to[i] = scaled(from[i]);
  });
}
void convert(const float* from, float* to, std::int64_t count, Scaling scaled) {
  run_vectorized([=] {
    for (std::int64_t i = 0; i < count; ++i) to[i] = scaled(from[i]);
  });
}
void convert(const float* from, BFloat16* to, std::int64_t count, Scaling scaled) {
  run_vectorized([=] {
    for (std::int64_t i = 0; i < count; ++i) to[i] = scaled(from[i]);
  });
}

template <typename T>
class Gather final : public Kernel {
 public:
  explicit Gather(const KernelScope& scope)
      : tensor_(scope.graph.tensors[scope.operation.output]),
        first_example_(scope.first_example),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        values_(scope.value<T>(scope.operation.output)),
        input_(scope.operation.model_input),
        scaled_(scaling_of(scope.graph.inputs[input_])) {}

  void run(const StepContext& context) override {
    std::visit([&](const auto* inputs) { gather(inputs, context); }, context.data.input(input_));
  }

 private:
  template <typename From>
  void gather(const From* inputs, const StepContext& context) const {
    const std::int64_t elements = tensor_.elements();
    const std::uint32_t* examples = context.examples.data() + first_example_;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t r = 0; r < num_examples_; ++r) {
      const From* example = inputs + static_cast<std::int64_t>(examples[r]) * elements;
      T* row = values_ + r * elements;
      if (tensor_.is_channels_last()) {
        convert(example, row, elements, scaled_);
        continue;
      }
      for (std::int64_t i = 0; i < elements; ++i) row[tensor_.offset_of_keras_index(i)] = scaled_(example[i]);
    }
  }

  const TensorSpec& tensor_;
  std::size_t first_example_;
  std::int64_t num_examples_;
  int threads_;
  T* values_;
  std::size_t input_;
  Scaling scaled_;
};

}  // namespace

std::unique_ptr<Kernel> make_gather(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<Gather<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
