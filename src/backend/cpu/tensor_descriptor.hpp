// Tensors and activations in oneDNN's words.
#pragma once

#include "backend/backend.hpp"

#include <dnnl.hpp>

#include <cstddef>

namespace lockstep {

[[nodiscard]] dnnl::memory::data_type data_type_of(const TensorSpec& tensor);
[[nodiscard]] dnnl::algorithm algorithm_of(ActivationFunction activation);

/// The tensor's examples as oneDNN describes them: {rows, channels, height, width}.
[[nodiscard]] dnnl::memory::desc descriptor_of(const TensorSpec& tensor, std::size_t rows);

/// The same, but in whichever layout oneDNN likes best.
[[nodiscard]] dnnl::memory::desc descriptor_of_any_layout(const TensorSpec& tensor, std::size_t rows);

}  // namespace lockstep
