// The names Keras gives to activations, losses and metrics: they appear in files, logs and errors.
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/losses.hpp>

#include <string_view>
#include <variant>

namespace lockstep {

std::string_view name_of(ActivationFunction function) noexcept {
  switch (function) {
    case ActivationFunction::linear: return "linear";
    case ActivationFunction::relu: return "relu";
    case ActivationFunction::sigmoid: return "sigmoid";
    case ActivationFunction::tanh: return "tanh";
    case ActivationFunction::softmax: return "softmax";
  }
  return "unknown";
}

std::string_view name_of(const Loss& loss) noexcept {
  if (std::holds_alternative<SparseCategoricalCrossentropy>(loss)) return "sparse_categorical_crossentropy";
  if (std::holds_alternative<CategoricalCrossentropy>(loss)) return "categorical_crossentropy";
  return "mean_squared_error";
}

std::string_view name_of(Metric metric) noexcept {
  switch (metric) {
    case Metric::accuracy: return "accuracy";
  }
  return "unknown";
}

}  // namespace lockstep
