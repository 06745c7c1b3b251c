// What `lockstep train`, `evaluate` and `predict` share: the model's file, how it is compiled, and data that suits it.
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/optimizers.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What the command line says; nothing where the file shall.
struct ModelSettings {
  std::filesystem::path model;
  std::optional<Optimizer> optimizer;
  std::optional<std::string> loss;  ///< its name: whether from logits, the model tells
  std::optional<std::vector<Metric>> metrics;
};

/// The options that fill `settings`, which must outlive them.
[[nodiscard]] ProgramOption model_option(ModelSettings& settings);
[[nodiscard]] ProgramOption optimizer_option(ModelSettings& settings);
[[nodiscard]] ProgramOption loss_option(ModelSettings& settings);
[[nodiscard]] ProgramOption metrics_option(ModelSettings& settings);

/// Throws UsageError where no model is named, or a file that can be none.
void check_model_name(const ModelSettings& settings, const std::string& program);

/// How `model` is compiled: as its file says (`saved`), but for what `settings` say. Throws UsageError naming the
/// options that a file without a compilation needs; without `trains` it needs no optimizer.
[[nodiscard]] CompileOptions compilation_of(const ModelSettings& settings, const Sequential& model,
                                            const std::optional<CompileOptions>& saved, bool trains);

/// Turns class indices into what `loss` wants: one-hot vectors, or for a single output their number. Throws DataError
/// where a class is none of the model's, UsageError where the outputs are no classes.
void suit_targets(Dataset& data, const Loss& loss, const Sequential& model);

/// "loss: 0.0731, accuracy: 0.9771", the loss first.
[[nodiscard]] std::string describe(const Logs& logs, const std::string& prefix = "", const char* separator = ", ");

}  // namespace lockstep
