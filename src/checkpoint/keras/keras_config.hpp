// Keras' JSON descriptions of a model's layers and its training configuration, as in .h5 files and model.to_json().
#pragma once

#include "checkpoint/keras/described_outputs.hpp"
#include "checkpoint/model_data.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns {"class_name": "Sequential" or "Functional", "config": {...}} with only keys that tf_keras and Keras 3.0 to
/// 3.15 understand.
[[nodiscard]] std::string architecture_to_json(const Architecture& architecture);

/// The layers' classes and options without names: Keras numbers automatic names within a process, so the same program
/// may give the same layers other names.
[[nodiscard]] std::string layers_to_json(const Architecture& architecture);

/// The layers whose weights Keras' files list: of a Sequential model, all but the Input.
[[nodiscard]] std::span<const LayerInfo> layers_with_groups(const Architecture& architecture);

/// Which Keras wrote a file: 2 (tf_keras) or 3.
enum class KerasVersion : std::uint8_t { two, three };

/// Of a file's keras_version, such as "2.15.0"; Keras 3 if the file does not tell.
[[nodiscard]] inline KerasVersion to_keras_version(std::string_view text) {
  return text.starts_with("2.") ? KerasVersion::two : KerasVersion::three;
}

/// Like model_from_json(), for a file that has the weights too. Nothing needs the initializers: where Lockstep lacks
/// one, the layer has its default. Keras 2's hard_sigmoid, which is another function, is refused.
[[nodiscard]] Architecture model_of_weights_from_json(const std::string& text, const std::string& source,
                                                      KerasVersion version);

/// Keras' training_config.
[[nodiscard]] std::string training_config_to_json(const CompileOptions& options);

/// The same with a class for each metric, as Keras 2 needs it: it takes names for functions, "accuracy" for the share
/// of outputs that equal their target. `outputs` as in training_config_from_json().
[[nodiscard]] std::string training_config_to_json_of_classes(const CompileOptions& options,
                                                             const DescribedOutputs& outputs);

/// Parses a training_config. Throws like model_from_json(). The result has iteration 0 and no slots. Of a
/// model with several outputs, CompileOptions::outputs has all.
[[nodiscard]] CompileState training_config_from_json(
    const std::string& text, const std::string& source = "training JSON", const DescribedOutputs& outputs = {},
    UnsupportedCompilation unsupported = UnsupportedCompilation::refuse, KerasVersion version = KerasVersion::three);

/// Notes in `refusals` an optimizer of a file of Keras 2 that computes otherwise there: Nadam, and averages of weights,
/// which Keras 3 begins with the first step's weights.
void refuse_rules_of_keras2(CompileState& training, const std::string& source);

/// Returns the config.json of a `.keras` file: architecture and, if compiled, optimizer, loss and metrics.
[[nodiscard]] std::string archive_config_to_json(const ModelData& model);

/// Parses the training configuration in the config.json of a `.keras` file; nullopt if the model is not compiled.
/// Otherwise like training_config_from_json().
[[nodiscard]] std::optional<CompileState> archive_compile_config_from_json(
    const std::string& text, const std::string& source = "config.json", const DescribedOutputs& outputs = {},
    UnsupportedCompilation unsupported = UnsupportedCompilation::refuse);

}  // namespace lockstep
