// What makes layers callable: Conv2D(16, 3)(x). Include <lockstep/layers/tensor.hpp> to call them.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

namespace lockstep {

class Tensor;

/// Tells layers apart. Copies of a layer are the same layer, as in Python: where they are called, they share weights.
class LayerIdentity {
 public:
  friend bool operator==(const LayerIdentity&, const LayerIdentity&) = default;

 private:
  std::shared_ptr<const int> unique_ = std::make_shared<const int>(0);
};

/// What layers have in common.
struct LayerBase {
  /// Whether training changes the layer's weights. Set it before the layer is called or becomes part of a model, or
  /// call Architecture::set_trainable. A BatchNormalization that is not trainable uses its moving statistics.
  bool trainable = true;
};

/// The base of layers that are called on one tensor.
template <typename L>
class CallableLayer : public LayerBase {
 public:
  /// Throws UsageError if the layer cannot read the input.
  Tensor operator()(const Tensor& input) const;

 private:
  LayerIdentity identity_;
};

/// The base of layers that are called on a list of tensors.
template <typename L>
class MergeLayer : public LayerBase {
 public:
  /// Throws UsageError if the layer cannot merge the inputs.
  Tensor operator()(std::initializer_list<Tensor> inputs) const;
  Tensor operator()(const std::vector<Tensor>& inputs) const;

 private:
  LayerIdentity identity_;
};

}  // namespace lockstep
