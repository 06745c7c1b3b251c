// Symbolic tensors: what a layer gives when it is called, and what a Functional model is made of.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/layer.hpp>

#include <initializer_list>
#include <memory>
#include <vector>

namespace lockstep {

/// The output of a layer's call. It has a shape but no values. Copies are the same tensor.
///
///   Tensor input = Input({32, 32, 3});
///   Tensor x = Conv2D(16, 3, {.padding = "same"})(input);
///   x = Add()({x, Conv2D(16, 1)(input)});
///   Functional model(input, x);
class Tensor {
 public:
  Tensor(const Input& input);  // NOLINT(google-explicit-constructor): as in Keras, an Input is a tensor

  /// Calls a layer. Throws UsageError if it cannot read the inputs; the message names the layer and their shapes.
  Tensor(Layer layer, const LayerIdentity& identity, std::vector<Tensor> inputs);

  /// The shape of one example.
  [[nodiscard]] const Shape& shape() const;

 private:
  friend class Functional;  // also of its nested classes
  struct Node;
  std::shared_ptr<const Node> node_;
};

template <typename L>
Tensor CallableLayer<L>::operator()(const Tensor& input) const {
  return Tensor(Layer(static_cast<const L&>(*this)), identity_, {input});
}

template <typename L>
Tensor MergeLayer<L>::operator()(std::initializer_list<Tensor> inputs) const {
  return (*this)(std::vector<Tensor>(inputs));
}

template <typename L>
Tensor MergeLayer<L>::operator()(const std::vector<Tensor>& inputs) const {
  return Tensor(Layer(static_cast<const L&>(*this)), identity_, inputs);
}

}  // namespace lockstep
