// oneDNN 2 and 3 as one: version 3 has no operation descriptors and builds a primitive's description directly. The only
// place that knows the version. Every function picks the first implementation that oneDNN offers.
#pragma once

#include <dnnl.hpp>

#include <span>
#include <string>
#include <vector>

namespace lockstep::onednn {

/// Where primitives run. Copies share the engine and the stream.
struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

/// "2.6.3"
[[nodiscard]] std::string version();

[[nodiscard]] bool has_bfloat16();

/// Winograd's way needs fewer multiplications for 3 x 3 kernels; oneDNN 3 has dropped it for CPUs.
enum class ConvolutionWay { direct, winograd };
[[nodiscard]] bool has_winograd();

struct Geometry {
  dnnl::memory::dims strides;
  dnnl::memory::dims dilation;  ///< oneDNN counts from 0
  dnnl::memory::dims pad_before;
  dnnl::memory::dims pad_after;
};

/// The attributes of a primitive that applies `activation` to its result; undef: none.
[[nodiscard]] dnnl::primitive_attr with_activation(dnnl::algorithm activation);

/// `bias` is a zero descriptor where there is none; `activation` is undef where there is none. Throws dnnl::error where
/// there is no implementation (of the way asked for).
[[nodiscard]] dnnl::convolution_forward::primitive_desc convolution_forward(
    const Context& context, const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& dst, const Geometry& geometry, dnnl::algorithm activation,
    ConvolutionWay way);

[[nodiscard]] dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const Context& context, const dnnl::memory::desc& diff_src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward);

[[nodiscard]] dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const Context& context, const dnnl::memory::desc& src, const dnnl::memory::desc& diff_weights,
    const dnnl::memory::desc& diff_bias, const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward, ConvolutionWay way);

[[nodiscard]] dnnl::matmul::primitive_desc matmul(const Context& context, const dnnl::memory::desc& src,
                                                  const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                                  const dnnl::memory::desc& dst, dnnl::algorithm activation);

/// A primitive with its arguments: made once, run every step without an allocation of ours.
class BoundPrimitive {
 public:
  struct Argument {
    int name = 0;  ///< DNNL_ARG_...
    dnnl::memory memory;
  };

  BoundPrimitive() = default;
  BoundPrimitive(const Context& context, const dnnl::primitive& primitive, std::vector<Argument> arguments);

  void run() const;
  [[nodiscard]] explicit operator bool() const noexcept { return !arguments_.empty(); }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<Argument> arguments_;  // keeps the memories alive
  std::vector<dnnl_exec_arg_t> c_arguments_;
};

/// Copies between layouts.
[[nodiscard]] BoundPrimitive reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to);

}  // namespace lockstep::onednn
