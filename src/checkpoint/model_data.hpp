// A model with its values, as files hold it. Training code converts to and from these value types.
#pragma once

#include <lockstep/core/named_tensor.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/training/compile_options.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Whether to refuse a file whose loss, optimizer or metric Lockstep lacks, or to note it in CompileState::refusals.
enum class UnsupportedCompilation { refuse, note };

/// How a model was compiled, with its current learning rate, and the state of its optimizer.
struct CompileState : SavedCompileOptions {
  std::int64_t iteration = 0;           ///< optimizer steps so far
  std::vector<NamedTensor> slots = {};  ///< the optimizer's state, in the order of slots_for()
};

/// The training state in a backup (see training_state.hpp), as text and arrays. Only Lockstep reads it.
struct SerializedTrainingState {
  std::string text;
  std::vector<NamedTensor> arrays;
};

struct ModelData {
  Architecture architecture;
  std::vector<NamedTensor> weights;  ///< in the order of weights_for()
  std::optional<CompileState> compile_state;
  std::optional<SerializedTrainingState> training_state = {};  ///< in backups only, which are .h5 files
};

/// All weights of a model, with empty values: layer by layer, in the order of LayerInfo::parameters. Names are Keras'
/// paths, e.g. "sequential/conv2d/kernel".
[[nodiscard]] std::vector<NamedTensor> weights_for(const Architecture& architecture);

/// The optimizer's arrays in Keras' order (see slot_index), with empty values. Adam has two for each trainable weight:
/// "adam/sequential_conv2d_kernel_momentum" and "..._velocity".
[[nodiscard]] std::vector<NamedTensor> slots_for(const Architecture& architecture, const Optimizer& optimizer);

/// Sets the arrays of slots_for() to their values before the first step.
void fill_initial_slots(const Optimizer& optimizer, std::vector<NamedTensor>& slots);

/// Gives the optimizer the state that it has before the first step.
void begin_anew(const Architecture& architecture, CompileState& training);

/// Throws InternalError unless weights and slots have the shapes of weights_for() and slots_for() and one value per
/// element.
void check_values(const ModelData& model);

/// "'dense/kernel' holds NaN or infinite values (the first at index 5)", for the first tensor that does.
[[nodiscard]] std::optional<std::string> find_nonfinite(const std::vector<NamedTensor>& tensors);

/// A generous estimate of the model's file size in bytes.
[[nodiscard]] std::size_t estimate_file_size(const ModelData& model);

/// The version of the HDF5 library, e.g. "1.10.8".
[[nodiscard]] std::string hdf5_version();

}  // namespace lockstep
