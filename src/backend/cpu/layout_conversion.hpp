// Conversions between the layout in which a tensor is stored and the one that a kernel wants.
#pragma once

#include "backend/cpu/onednn.hpp"
#include "core/aligned_buffer.hpp"
#include "graph/tensor_spec.hpp"

#include <cstddef>

namespace lockstep {

/// Converts between the layout in which memory is stored and the one that a kernel wants, before or after the kernel
/// runs. If both are equal, the kernel uses the stored memory and `run` does nothing.
class LayoutConversion {
 public:
  LayoutConversion() = default;
  LayoutConversion(const onednn::Context& context, const dnnl::memory::desc& stored, void* data,
                   const dnnl::memory::desc& wanted, bool stored_is_source);
  /// Memory that another kernel has converted.
  explicit LayoutConversion(dnnl::memory converted);

  [[nodiscard]] const dnnl::memory& wanted() const noexcept { return wanted_; }
  [[nodiscard]] bool converts() const noexcept { return static_cast<bool>(copy_); }
  void run() const {
    if (copy_) copy_.run();
  }

 private:
  AlignedBuffer scratch_;
  dnnl::memory wanted_;
  onednn::BoundPrimitive copy_;
};

/// How a tensor is stored, as a descriptor that equals `wanted` if no conversion is needed. Images of one channel or of
/// one pixel, and blocks that hold all channels, are the same memory under several names.
[[nodiscard]] dnnl::memory::desc stored_as(const TensorSpec& tensor, const TensorSpec& read, std::size_t num_examples,
                                           const dnnl::memory::desc& wanted);

}  // namespace lockstep
