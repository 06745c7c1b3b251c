// See signature.hpp.
#include "serve/signature.hpp"

#include "graph/input_numbers.hpp"

#include <cstddef>

namespace lockstep {

ModelSignature signature_of(const Architecture& model) {
  ModelSignature signature;
  const Architecture flattened = model.flattened();
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const auto call = static_cast<std::size_t>(model.inputs()[i]);
    signature.inputs.push_back(
        {model.input_layer(i).name, model.calls()[call].output_shape, numbers_of_input(flattened, i)});
  }
  for (std::size_t i = 0; i < model.outputs().size(); ++i)
    signature.outputs.push_back({model.output_name(i), model.output_shape(i)});
  return signature;
}

}  // namespace lockstep
