// Converts tensors and activation functions to oneDNN's descriptors.
#pragma once

#include "backend/backend.hpp"

#include <dnnl.hpp>

#include <cstddef>

namespace lockstep {

[[nodiscard]] dnnl::memory::data_type data_type_of(const TensorSpec& tensor);
/// undef for linear and for functions that oneDNN cannot fuse: see UnfusedActivation.
[[nodiscard]] dnnl::algorithm algorithm_of(ActivationFunction activation);

/// The descriptor of `num_examples` examples of the tensor: dimensions {examples, channels, height, width}.
[[nodiscard]] dnnl::memory::desc descriptor_of(const TensorSpec& tensor, std::size_t num_examples);

/// The same with format_tag::any, so that oneDNN chooses the layout.
[[nodiscard]] dnnl::memory::desc descriptor_of_any_layout(const TensorSpec& tensor, std::size_t num_examples);

}  // namespace lockstep
