// Fragments of Keras' JSON, of which tests of its readers are made.
#pragma once

#include "checkpoint/keras/keras_config.hpp"
#include "support/messages.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>

#include <string>

namespace lockstep::testing {

/// A Sequential model of Input({8, 8, 1}) and the given layer entries.
[[nodiscard]] inline std::string model_of(const std::string& layers) {
  return R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"batch_shape": [null, 8, 8, 1], "name": "in", "dtype": "float32",
     "sparse": false, "ragged": false, "optional": false}}, )" +
         layers + "]}}";
}

[[nodiscard]] inline std::string layer(const std::string& class_name, const std::string& config) {
  return R"({"class_name": ")" + class_name + R"(", "config": {"name": "it")" + (config.empty() ? "" : ", ") + config +
         "}}";
}

[[nodiscard]] inline std::string refusal(const std::string& text) {
  return message_of<DataError>([&] { (void)model_from_json(text, "m.h5"); });
}

[[nodiscard]] inline std::string training_refusal(const std::string& text) {
  return message_of<DataError>([&] { (void)training_config_from_json(text, "m.h5"); });
}

[[nodiscard]] inline std::string training_of(const std::string& optimizer, const std::string& loss,
                                             const std::string& metrics = "null") {
  return R"({"loss": )" + loss + R"(, "metrics": )" + metrics + R"(, "weighted_metrics": null, "loss_weights": null,
    "run_eagerly": false, "steps_per_execution": 1, "jit_compile": true, "optimizer_config": )" +
         optimizer + "}";
}

inline const std::string sgd = R"({"class_name": "SGD", "config": {"learning_rate": 0.5}})";
inline const std::string mse = R"({"class_name": "MeanSquaredError", "config": {}})";

}  // namespace lockstep::testing
