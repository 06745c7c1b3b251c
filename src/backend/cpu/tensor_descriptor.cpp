// See tensor_descriptor.hpp.
#include "backend/cpu/tensor_descriptor.hpp"

namespace lockstep {

namespace {

using dnnl::memory;

memory::format_tag tag_of(Layout layout) {
  switch (layout) {
    case Layout::nhwc: break;
    case Layout::nChw16c: return memory::format_tag::nChw16c;
    case Layout::nChw8c: return memory::format_tag::nChw8c;
    case Layout::nchw: return memory::format_tag::nchw;
  }
  return memory::format_tag::nhwc;
}

memory::dims dims_of(const TensorSpec& tensor, std::size_t num_examples) {
  return {static_cast<memory::dim>(num_examples), tensor.channels, tensor.height, tensor.width};
}

}  // namespace

memory::data_type data_type_of(const TensorSpec& tensor) {
  return tensor.type == ElementType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

dnnl::algorithm algorithm_of(ActivationFunction activation) {
  if (activation == ActivationFunction::relu) return dnnl::algorithm::eltwise_relu;
  if (activation == ActivationFunction::sigmoid) return dnnl::algorithm::eltwise_logistic;
  if (activation == ActivationFunction::tanh) return dnnl::algorithm::eltwise_tanh;
  return dnnl::algorithm::undef;
}

memory::desc descriptor_of(const TensorSpec& tensor, std::size_t num_examples) {
  return {dims_of(tensor, num_examples), data_type_of(tensor), tag_of(tensor.layout)};
}

memory::desc descriptor_of_any_layout(const TensorSpec& tensor, std::size_t num_examples) {
  return {dims_of(tensor, num_examples), data_type_of(tensor), memory::format_tag::any};
}

}  // namespace lockstep
