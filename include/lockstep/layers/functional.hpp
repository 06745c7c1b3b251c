// A model made of tensors: layers with branches, merges and shared weights.
#pragma once

#include <lockstep/layers/architecture.hpp>
#include <lockstep/layers/tensor.hpp>

#include <string>
#include <vector>

namespace lockstep {

/// As keras.Model(inputs, outputs): all layers between the inputs and the outputs, in Keras' order.
class Functional : public Architecture {
 public:
  /// Throws UsageError if an input is not an Input's tensor or an output depends on an Input that is not listed.
  Functional(const Tensor& input, const Tensor& output, std::string name = {});
  Functional(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs, std::string name = {});

  /// From a graph that was read from a file, with its layers in any order.
  Functional(const LayerGraph& graph, std::string name);

 private:
  class Collector;
};

}  // namespace lockstep
