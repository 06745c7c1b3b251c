// What the files of bare kernels share: primitives with their memory, and the tensors of an operation.
#pragma once

#include "backend/cpu/onednn.hpp"
#include "backend/cpu/tensor_descriptor.hpp"
#include "core/aligned_buffer.hpp"
#include "core/bfloat16.hpp"
#include "micro/bare.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::bench {

using dnnl::memory;
using Type = memory::data_type;
using onednn::BoundPrimitive;

/// Makes kernels and owns their memory, which comes from the backend's allocator (with huge pages).
class Maker {
 public:
  explicit Maker(const onednn::Context& context)
      : context_(context), buffers_(std::make_shared<std::vector<AlignedBuffer>>()) {}

  [[nodiscard]] const onednn::Context& context() const { return context_; }

  [[nodiscard]] memory empty(const memory::desc& descriptor) const {
    buffers_->emplace_back(descriptor.get_size());
    return {descriptor, context_.engine, buffers_->back().data()};
  }

  [[nodiscard]] memory filled(const memory::desc& descriptor, Type type) const {
    memory result = empty(descriptor);
    std::vector<float> values(descriptor.get_size() / (type == Type::bf16 ? sizeof(BFloat16) : sizeof(float)));
    fill_like_weights(values);
    if (type == Type::bf16) {
      std::copy(values.begin(), values.end(), buffers_->back().as<BFloat16>().data());
    } else {
      std::copy(values.begin(), values.end(), buffers_->back().as<float>().data());
    }
    return result;
  }

  template <typename Primitive, typename Description>
  [[nodiscard]] BareKernel kernel(std::string part, std::string algorithm, const Description& description,
                                  std::vector<BoundPrimitive::Argument> arguments) const {
    const auto primitive = std::make_shared<BoundPrimitive>(context_, Primitive(description), std::move(arguments));
    return {std::move(part), std::move(algorithm), description.impl_info_str(),
            [primitive, buffers = buffers_] { primitive->run(); }};
  }

 private:
  const onednn::Context& context_;
  std::shared_ptr<std::vector<AlignedBuffer>> buffers_;
};

inline memory::desc any(const memory::dims& dims, Type type) { return {dims, type, memory::format_tag::any}; }

/// An operation's tensors as the bare primitive sees them. In bfloat16, gradients of activations are bfloat16 and those
/// of weights and biases are float32, as in the step.
struct Shapes {
  Shapes(const Graph& graph, const Operation& operation, std::size_t rows)
      : input(graph.tensors[operation.input]),
        output(graph.tensors[operation.output]),
        count(static_cast<memory::dim>(rows)),
        type(data_type_of(input)),
        output_type(data_type_of(output)),
        biased(operation.num_parameters > 1) {}

  [[nodiscard]] memory::desc bias() const {
    return biased ? memory::desc({output.channels}, Type::f32, memory::format_tag::a) : memory::desc();
  }

  const TensorSpec& input;
  const TensorSpec& output;
  memory::dim count;
  Type type;
  Type output_type;
  bool biased;
};

// One function for each group of operations, forward and backward.
[[nodiscard]] std::vector<BareKernel> convolution_kernels(const Maker& make, const Graph& graph,
                                                          const Operation& operation, std::size_t rows);
[[nodiscard]] std::vector<BareKernel> dense_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                                    std::size_t rows);
[[nodiscard]] std::vector<BareKernel> pooling_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                                      std::size_t rows);
[[nodiscard]] std::vector<BareKernel> normalization_kernels(const Maker& make, const Graph& graph,
                                                            const Operation& operation, std::size_t rows);
[[nodiscard]] std::vector<BareKernel> elementwise_kernels(const Maker& make, const Graph& graph,
                                                          const Operation& operation, std::size_t rows);

}  // namespace lockstep::bench
