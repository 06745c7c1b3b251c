// See signature.hpp.
#include "serve/signature.hpp"

#include <cstddef>

namespace lockstep {

ModelSignature signature_of(const Architecture& model) {
  ModelSignature signature;
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const auto call = static_cast<std::size_t>(model.inputs()[i]);
    signature.inputs.push_back(
        {model.input_layer(i).name, model.calls()[call].output_shape, model.input_type(i) != InputType::float32});
  }
  for (std::size_t i = 0; i < model.outputs().size(); ++i)
    signature.outputs.push_back({model.output_name(i), model.output_shape(i), false});
  return signature;
}

}  // namespace lockstep
