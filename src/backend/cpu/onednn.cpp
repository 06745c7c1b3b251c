// See onednn.hpp.
#include "backend/cpu/onednn.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace lockstep::onednn {

namespace {

dnnl::algorithm algorithm_of(Algorithm algorithm) {
  return algorithm == Algorithm::winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
}

}  // namespace

dnnl::primitive_attr with_activation(dnnl::algorithm activation) {
  dnnl::primitive_attr attributes;
  if (activation == dnnl::algorithm::undef) return attributes;
  dnnl::post_ops operations;
#if DNNL_VERSION_MAJOR >= 3
  operations.append_eltwise(activation, 0.0F, 0.0F);
#else
  operations.append_eltwise(1.0F, activation, 0.0F, 0.0F);
#endif
  attributes.set_post_ops(operations);
  return attributes;
}

std::string version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

bool has_winograd() { return DNNL_VERSION_MAJOR < 3; }

bool has_bfloat16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & needed) == needed;
}

namespace {

/// oneDNN 2.6's kernels for 1 x 1 windows reserve too little scratch memory if there are strides and fewer than 16
/// channels, channels last: they overwrite the heap, with AVX-512 on several threads, with AVX2 on one.
bool overflows(std::string_view implementation, const dnnl::memory::dims& kernel, std::int64_t channels,
               const Geometry& geometry) {
  const bool is_pointwise = kernel[kernel.size() - 2] == 1 && kernel.back() == 1;
  const bool is_strided = geometry.strides[0] > 1 || geometry.strides[1] > 1;
  return is_pointwise && is_strided && channels < 16 && implementation.find("1x1") != std::string_view::npos;
}

/// Takes the next implementation until none of oneDNN's defects concerns it.
template <typename Descriptor, typename Concerns>
Descriptor without_defects(Descriptor chosen, const Concerns& concerns) {
  while (concerns(chosen)) {
    if (!chosen.next_impl()) throw InternalError("oneDNN offers no convolution that computes this one right");
  }
  return chosen;
}

}  // namespace

#if DNNL_VERSION_MAJOR >= 3

namespace {

/// oneDNN 3.7.2's brgemm kernel computes a wrong column, from memory outside the image too, for images of one channel
/// whose windows are more than one column apart and yield a single one.
bool is_wrong(const dnnl::convolution_forward::primitive_desc& chosen, const Geometry& geometry) {
  return std::string_view(chosen.impl_info_str()).substr(0, 3) == "brg" && chosen.src_desc().get_dims()[1] == 1 &&
         chosen.dst_desc().get_dims()[3] == 1 && geometry.strides[1] > 1;
}

}  // namespace

dnnl::convolution_forward::primitive_desc convolution_forward(const Context& context, const dnnl::memory::desc& src,
                                                              const dnnl::memory::desc& weights,
                                                              const dnnl::memory::desc& bias,
                                                              const dnnl::memory::desc& dst, const Geometry& geometry,
                                                              dnnl::algorithm activation, Algorithm algorithm) {
  const dnnl::convolution_forward::primitive_desc chosen(
      context.engine, dnnl::prop_kind::forward_training, algorithm_of(algorithm), src, weights, bias, dst,
      geometry.strides, geometry.dilation, geometry.pad_before, geometry.pad_after, with_activation(activation));
  return without_defects(chosen, [&](const auto& each) {
    return is_wrong(each, geometry) || overflows(each.impl_info_str(), weights.get_dims(), src.get_dims()[1], geometry);
  });
}

dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const Context& context, const dnnl::memory::desc& diff_src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward, Algorithm algorithm) {
  const dnnl::convolution_backward_data::primitive_desc chosen(context.engine, algorithm_of(algorithm), diff_src,
                                                               weights, diff_dst, geometry.strides, geometry.dilation,
                                                               geometry.pad_before, geometry.pad_after, forward);
  return without_defects(chosen, [&](const auto& each) {
    return overflows(each.impl_info_str(), weights.get_dims(), diff_src.get_dims()[1], geometry);
  });
}

dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const Context& context, const dnnl::memory::desc& src, const dnnl::memory::desc& diff_weights,
    const dnnl::memory::desc& diff_bias, const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward, Algorithm algorithm) {
  const dnnl::convolution_backward_weights::primitive_desc chosen(
      context.engine, algorithm_of(algorithm), src, diff_weights, diff_bias, diff_dst, geometry.strides,
      geometry.dilation, geometry.pad_before, geometry.pad_after, forward);
  return without_defects(chosen, [&](const auto& each) {
    return overflows(each.impl_info_str(), diff_weights.get_dims(), src.get_dims()[1], geometry);
  });
}

dnnl::matmul::primitive_desc matmul(const Context& context, const dnnl::memory::desc& src,
                                    const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                    const dnnl::memory::desc& dst, dnnl::algorithm activation) {
  return {context.engine, src, weights, bias, dst, with_activation(activation)};
}

#else

dnnl::convolution_forward::primitive_desc convolution_forward(const Context& context, const dnnl::memory::desc& src,
                                                              const dnnl::memory::desc& weights,
                                                              const dnnl::memory::desc& bias,
                                                              const dnnl::memory::desc& dst, const Geometry& geometry,
                                                              dnnl::algorithm activation, Algorithm algorithm) {
  const dnnl::convolution_forward::desc description(dnnl::prop_kind::forward_training, algorithm_of(algorithm), src,
                                                    weights, bias, dst, geometry.strides, geometry.dilation,
                                                    geometry.pad_before, geometry.pad_after);
  const dnnl::convolution_forward::primitive_desc chosen(description, with_activation(activation), context.engine);
  return without_defects(chosen, [&](const auto& each) {
    return overflows(each.impl_info_str(), weights.dims(), src.dims()[1], geometry);
  });
}

dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const Context& context, const dnnl::memory::desc& diff_src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward, Algorithm algorithm) {
  const dnnl::convolution_backward_data::desc description(algorithm_of(algorithm), diff_src, weights, diff_dst,
                                                          geometry.strides, geometry.dilation, geometry.pad_before,
                                                          geometry.pad_after);
  const dnnl::convolution_backward_data::primitive_desc chosen(description, context.engine, forward);
  return without_defects(chosen, [&](const auto& each) {
    return overflows(each.impl_info_str(), weights.dims(), diff_src.dims()[1], geometry);
  });
}

dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const Context& context, const dnnl::memory::desc& src, const dnnl::memory::desc& diff_weights,
    const dnnl::memory::desc& diff_bias, const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward, Algorithm algorithm) {
  const dnnl::convolution_backward_weights::desc description(algorithm_of(algorithm), src, diff_weights, diff_bias,
                                                             diff_dst, geometry.strides, geometry.dilation,
                                                             geometry.pad_before, geometry.pad_after);
  const dnnl::convolution_backward_weights::primitive_desc chosen(description, context.engine, forward);
  return without_defects(chosen, [&](const auto& each) {
    return overflows(each.impl_info_str(), diff_weights.dims(), src.dims()[1], geometry);
  });
}

dnnl::matmul::primitive_desc matmul(const Context& context, const dnnl::memory::desc& src,
                                    const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                    const dnnl::memory::desc& dst, dnnl::algorithm activation) {
  return {dnnl::matmul::desc(src, weights, bias, dst), with_activation(activation), context.engine};
}

#endif

BoundPrimitive::BoundPrimitive(const Context& context, const dnnl::primitive& primitive,
                               std::vector<Argument> arguments)
    : primitive_(primitive), stream_(context.stream), arguments_(std::move(arguments)) {
  for (const Argument& argument : arguments_) c_arguments_.push_back({argument.name, argument.memory.get()});
}

void BoundPrimitive::run() const {
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                                      static_cast<int>(c_arguments_.size()), c_arguments_.data());
  if (status != dnnl_success) {
    throw InternalError(fmt::format("oneDNN could not run a primitive (status {})", static_cast<int>(status)));
  }
}

BoundPrimitive reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to) {
  return {context, dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

}  // namespace lockstep::onednn
