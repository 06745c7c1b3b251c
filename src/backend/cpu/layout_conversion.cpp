// See layout_conversion.hpp.
#include "backend/cpu/layout_conversion.hpp"

#include "backend/cpu/tensor_descriptor.hpp"

#include <utility>

namespace lockstep {

using dnnl::memory;

LayoutConversion::LayoutConversion(const onednn::Context& context, const memory::desc& stored, void* data,
                                   const memory::desc& wanted, bool stored_is_source)
    : wanted_(wanted, context.engine, data) {
  if (stored == wanted) return;
  scratch_ = AlignedBuffer(wanted.get_size());
  wanted_ = memory(wanted, context.engine, scratch_.data());
  const memory outside(stored, context.engine, data);
  copy_ = stored_is_source ? onednn::reorder(context, outside, wanted_) : onednn::reorder(context, wanted_, outside);
}

LayoutConversion::LayoutConversion(memory converted) : wanted_(std::move(converted)) {}

memory::desc stored_as(const TensorSpec& tensor, const TensorSpec& read, std::size_t num_examples,
                       const memory::desc& wanted) {
  const bool same_order = tensor.layout == read.layout || (tensor.is_channels_last() && read.is_channels_last());
  return same_order && tensor.type == read.type ? wanted : descriptor_of(tensor, num_examples);
}

}  // namespace lockstep
