// One interface to oneDNN 2 and 3. Version 3 has no operation descriptors and builds primitive descriptors directly.
// Every function returns the first implementation that oneDNN offers and that computes right.
#pragma once

#include <dnnl.hpp>

#include <span>
#include <string>
#include <vector>

namespace lockstep::onednn {

/// The engine and stream on which primitives run. Copies share both.
struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

/// "2.6.3"
[[nodiscard]] std::string version();

[[nodiscard]] bool has_bfloat16();

/// Winograd needs fewer multiplications for 3 x 3 kernels. oneDNN 3 no longer supports it on CPUs.
enum class Algorithm { direct, winograd };
[[nodiscard]] bool has_winograd();

struct Geometry {
  dnnl::memory::dims strides;
  dnnl::memory::dims dilation;  ///< 0 for a dense kernel: Keras' dilation_rate minus 1
  dnnl::memory::dims pad_before;
  dnnl::memory::dims pad_after;
};

/// The attributes of a primitive that applies `activation` to its result. undef: no activation.
[[nodiscard]] dnnl::primitive_attr with_activation(dnnl::algorithm activation);

/// `bias` is a zero descriptor for no bias; `activation` is undef for no activation. Throws dnnl::error if oneDNN does
/// not implement the algorithm for these layouts.
[[nodiscard]] dnnl::convolution_forward::primitive_desc convolution_forward(
    const Context& context, const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& dst, const Geometry& geometry, dnnl::algorithm activation,
    Algorithm algorithm);

[[nodiscard]] dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const Context& context, const dnnl::memory::desc& diff_src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward, Algorithm algorithm);

[[nodiscard]] dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const Context& context, const dnnl::memory::desc& src, const dnnl::memory::desc& diff_weights,
    const dnnl::memory::desc& diff_bias, const dnnl::memory::desc& diff_dst, const Geometry& geometry,
    const dnnl::convolution_forward::primitive_desc& forward, Algorithm algorithm);

[[nodiscard]] dnnl::matmul::primitive_desc matmul(const Context& context, const dnnl::memory::desc& src,
                                                  const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                                  const dnnl::memory::desc& dst, dnnl::algorithm activation);

/// A primitive with its arguments. Running it allocates nothing outside oneDNN.
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
  std::vector<Argument> arguments_;  // owns the memory objects that c_arguments_ refers to
  std::vector<dnnl_exec_arg_t> c_arguments_;
};

/// Copies between layouts.
[[nodiscard]] BoundPrimitive reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to);

}  // namespace lockstep::onednn
