// Which array of a dataset each input and each output of a model reads, and whether the model can take it.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/training/compile_options.hpp>

#include <cstddef>
#include <optional>
#include <span>

namespace lockstep {

/// Equal shapes, or one has a last axis of 1 more than the other, as Keras allows.
[[nodiscard]] bool is_same_but_for_last_one(const Shape& a, const Shape& b);

/// The shape of an example's class indices: one for each vector along the last axis of the model's output.
[[nodiscard]] Shape shape_of_classes(const Shape& output);

/// The array of a model's input: that of its name, or the one at its place if no array has a name. The data has passed
/// check_example_shapes().
[[nodiscard]] const InputArray& array_of_input(const Dataset& data, const Architecture& model, std::size_t input);

/// The targets of a model's output, in the same way. The data has passed require_targets().
[[nodiscard]] const TargetArray& array_of_output(const Dataset& data, const Architecture& model, std::size_t output);

/// Throws UsageError if two outputs are of one layer. They are predicted, but Keras names their losses and metrics
/// alike, so that its logs show only one of them.
void require_outputs_of_different_layers(const Architecture& model);

/// Throws UsageError unless the data has one array of targets for each output of the model and no other, and the
/// outputs are of different layers.
void require_targets(const Dataset& data, const Architecture& model);

/// Throws UsageError unless the data has one array for each input of the model and no other, DataError unless they have
/// the inputs' shapes.
void check_example_shapes(const Dataset& data, const Architecture& model);

/// Throws DataError for a number that Keras would cut to the type of an Input or that no row of an Embedding has,
/// UsageError for a scale of bytes that scales nothing. `input_scale`: --input-scale.
void check_input_numbers(const Dataset& data, const Architecture& model, std::optional<double> input_scale);

/// All that can be known of a dataset without other workers: whether the model can be trained on it, or evaluated.
/// Throws UsageError or DataError.
void check_data(const Dataset& data, const Architecture& model, std::span<const OutputOptions> outputs,
                std::optional<double> input_scale);

/// The same for a model that predicts.
void check_inputs_alone(const Dataset& data, const Architecture& model, std::optional<double> input_scale);

}  // namespace lockstep
