// What `lockstep train`, `evaluate`, `predict` and `plan` share: the model's file, how it is compiled, and targets in
// the form that its loss takes.
#pragma once

#include <lockstep/data/load_dataset.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>
#include <lockstep/optimizers/optimizers.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The choices of the command line. Values that are not set come from the model's file.
struct ModelSettings {
  std::filesystem::path model;
  std::optional<Optimizer> optimizer;
  std::optional<std::string> loss;  ///< its name; the model's last activation decides whether outputs are logits
  std::optional<std::vector<Metric>> metrics;
};

/// The options that fill `settings`, which must outlive them.
[[nodiscard]] ProgramOption model_option(ModelSettings& settings);
[[nodiscard]] ProgramOption optimizer_option(ModelSettings& settings);
[[nodiscard]] ProgramOption loss_option(ModelSettings& settings);
[[nodiscard]] ProgramOption metrics_option(ModelSettings& settings);

/// Throws UsageError if --model is missing.
void require_model(const ModelSettings& settings, const std::string& program);
/// Throws UsageError if the model's file is .json, which holds no weights, and --initial-weights names no other.
void require_weights(const ModelSettings& settings, const Options& options);

/// How `model` is compiled: as its file says (`saved`), unless `settings` override it. Another loss without metrics of
/// its own has default ones in place of those that Lockstep lacks. Throws UsageError that names the missing options if
/// the file is not compiled, DataError if a part of the file is needed and refused; an optimizer is needed only if
/// `trains`.
[[nodiscard]] CompileOptions resolve_compile_options(const ModelSettings& settings, const Architecture& model,
                                                     const std::optional<SavedCompileOptions>& saved, bool trains);

/// Throws UsageError if --data-dir is missing: unlike the programs for MNIST, these commands have no data of their own.
void require_data_dir(const Options& options, const std::string& program);

/// What the arrays of the model's data are called.
[[nodiscard]] ArrayNames array_names(const Architecture& model);

/// Checks what can be checked before a model is compiled, which measures its kernels for seconds. Throws DataError if
/// the examples have other shapes than the model's inputs. Throws UsageError if they are bytes of an .npz or .npy file,
/// and neither --input-scale nor a layer of the model says how to scale them: Keras uses bytes as they are, and most
/// programs divide them by 255 first.
void check_inputs(const Dataset& data, const Options& options, const Architecture& model);

/// Warns if --input-scale multiplies bytes that a Rescaling layer multiplies again.
void warn_of_second_scale(const Options& options, const Architecture& model);

/// By what the bytes of the inputs are multiplied; none if they are floats.
[[nodiscard]] std::optional<double> byte_scale_of(const Dataset& data, const Options& options,
                                                  const Architecture& model);

/// What is done with the bytes of the inputs: "bytes multiplied by 1/255 (see --input-scale)"; empty if they are
/// floats.
[[nodiscard]] std::string describe_bytes(const Dataset& data, const Options& options, const Architecture& model);

/// "Data: 1200 training and 300 test examples of shape (48, 48, 3), bytes multiplied by 1/255 (see --input-scale),
/// from shapes.npz".
[[nodiscard]] std::string describe(const TrainTestSplit& data, const Options& options, const Architecture& model);

/// Converts class indices for a loss that takes dense targets: to one-hot vectors, or for a single output to the
/// index as a float. For one that takes class indices, converts floats that are whole numbers. Throws DataError for a
/// class that the model lacks, UsageError if the outputs are not one vector of classes. Returns whether it made one-hot
/// vectors, which Keras leaves to the user.
bool convert_targets(Dataset& data, const CompileOptions& options, const Architecture& model);
void warn_of_one_hot();

/// "loss: 0.0731, accuracy: 0.9771", the loss first.
[[nodiscard]] std::string describe(const Logs& logs, const std::string& prefix = "", const char* separator = ", ");

}  // namespace lockstep
