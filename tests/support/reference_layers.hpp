// The layers of the reference: forward and backward written the way a textbook writes them, in double precision and
// without a thought for speed. Nothing here is shared with a backend.
#pragma once

#include <lockstep/nn/sequential.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::reference {

using Values = std::vector<double>;

/// All that names one element Dropout decides on.
struct DropoutElement {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;  ///< place in Sequential::layers()
  std::uint64_t step = 0;   ///< from 0
  std::uint32_t place = 0;  ///< of its example in the global batch
  std::uint32_t index = 0;  ///< in the example, Keras order
  double rate = 0;
};
using KeepElement = std::function<bool(const DropoutElement&)>;

/// What a layer is told of the pass it takes part in.
struct Pass {
  std::int64_t examples = 0;  ///< of the replica's slice
  bool training = false;
  std::uint32_t first_place = 0;  ///< of the slice in the global batch
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  const KeepElement* keep = nullptr;
};

/// One layer. Parameters, gradients and statistics are those of LayerInfo::parameters, in that order.
class Layer {
 public:
  virtual ~Layer() = default;

  virtual Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) = 0;

  /// After forward: the loss' gradient by the input; adds that by each trainable parameter to `gradients`. For moving
  /// statistics adds the slice's own statistic instead.
  virtual Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) = 0;
};

std::unique_ptr<Layer> make_layer(const LayerInfo& info, std::uint32_t ordinal);

/// Those that slide a window.
std::unique_ptr<Layer> make_convolution(const Conv2D& conv, const LayerInfo& info);
std::unique_ptr<Layer> make_pooling(const MaxPooling2D& pooling, const LayerInfo& info);
std::unique_ptr<Layer> make_pooling(const AveragePooling2D& pooling, const LayerInfo& info);

}  // namespace lockstep::reference
