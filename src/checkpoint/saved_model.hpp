// A model with its values, as files hold it: plain values that training fills and takes back.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/optimizers.hpp>
#include <lockstep/nn/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One array in Keras' layout (convolutions HWIO, Dense [in, out]), row-major.
struct SavedTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

/// What `compile` set and training changed.
struct SavedTraining {
  Optimizer optimizer;  ///< learning rate as of now
  Loss loss;
  std::vector<Metric> metrics;
  std::int64_t iteration = 0;      ///< steps made
  std::vector<SavedTensor> slots;  ///< the optimizer's state, the order of slots_for()
};

/// What a backup holds beside its model (see training_state.hpp): a text and arrays that only Lockstep reads.
struct SavedState {
  std::string text;
  std::vector<SavedTensor> arrays;
};

struct SavedModel {
  Sequential architecture;
  std::vector<SavedTensor> weights;  ///< the order of weights_for()
  std::optional<SavedTraining> training;
  std::optional<SavedState> state = {};  ///< in backups, which are .h5 files
};

/// All weights of a model with values empty: layer by layer in ParameterInfo's order. Named as Keras names them,
/// "sequential/conv2d/kernel".
[[nodiscard]] std::vector<SavedTensor> weights_for(const Sequential& architecture);

/// The optimizer's arrays in Keras' order, values empty, e.g. for Adam "adam/sequential_conv2d_kernel_momentum" and
/// "..._velocity" of each trainable weight in turn; for RMSprop all velocities, then all momenta, then all average
/// gradients.
[[nodiscard]] std::vector<SavedTensor> slots_for(const Sequential& architecture, const Optimizer& optimizer);

/// Throws InternalError unless weights and slots have the shapes of weights_for() and slots_for(), and their values.
void check_values(const SavedModel& model);

/// Bytes of a file of it, and a little more.
[[nodiscard]] std::size_t size_of_file(const SavedModel& model);

/// "SGD", "adam", "adamw", "rmsprop": Keras' name of the object (not the class), which begins its variables' names.
[[nodiscard]] std::string keras_name_of(const Optimizer& optimizer);

/// The HDF5 library's, e.g. "1.10.8".
[[nodiscard]] std::string hdf5_version();

}  // namespace lockstep
