// A model whose layers form a chain.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep {

/// As keras.Sequential. The first layer is an Input, which gives the shape of one example, or a nested model.
class Sequential : public Architecture {
 public:
  /// Throws UsageError if a layer cannot follow the previous one; the message names the layer and its input shape.
  Sequential(std::initializer_list<Layer> layers) : Sequential(std::vector<Layer>(layers)) {}
  explicit Sequential(std::vector<Layer> layers, std::string name = {});
};

}  // namespace lockstep
