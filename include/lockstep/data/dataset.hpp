// A dataset in memory: contiguous examples. Byte inputs become floats only when a step gathers its batch.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/data/example_arrays.hpp>
#include <lockstep/data/shared_array.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Identifies a dataset within the process, even if another dataset later reuses its memory. A copy gets a new id; a
/// move keeps the id.
class DatasetId {
 public:
  DatasetId() noexcept : value_(next()) {}
  DatasetId(const DatasetId& /*other*/) noexcept : value_(next()) {}
  DatasetId(DatasetId&& other) noexcept : value_(std::exchange(other.value_, next())) {}
  DatasetId& operator=(const DatasetId& other) noexcept {
    if (this != &other) value_ = next();
    return *this;
  }
  DatasetId& operator=(DatasetId&& other) noexcept {
    if (this != &other) value_ = std::exchange(other.value_, next());
    return *this;
  }
  ~DatasetId() = default;

  /// At least 1.
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  [[nodiscard]] static std::uint64_t next() noexcept;

  std::uint64_t value_;
};

/// `size()` examples: an array for each input of the model, and one for each output.
struct Dataset {
  Dataset() = default;
  /// Data of a model that has one input and one output.
  Dataset(Shape example_shape, InputValues input_values, Shape target_shape, TargetValues target_values,
          std::string origin = {});

  std::vector<InputArray> inputs;
  std::vector<TargetArray> targets;  ///< empty: the data is to predict for
  std::string source;                ///< the origin of the data, for messages
  DatasetId id;  ///< a model validates each id once: to change values after that, assign a new Dataset
  /// Keras' sample_weight: one number for each example, by which its loss and its weighted metrics are multiplied.
  /// Empty: all are 1.
  SharedArray<float> sample_weights;
  /// How many axes the array of sample weights had, 1 or 2; 0: they are not from a file.
  std::size_t axes_of_weights = 0;
  bool is_refilled = false;  ///< other values replace these between epochs, so they do not identify the data

  /// The first input and the first target: of a model that has one of each, the only ones.
  [[nodiscard]] InputArray& input() { return inputs.front(); }
  [[nodiscard]] const InputArray& input() const { return inputs.front(); }
  [[nodiscard]] TargetArray& target() { return targets.front(); }
  [[nodiscard]] const TargetArray& target() const { return targets.front(); }

  /// What messages call an array: "digits.npz:x_train", or "'image' of digits.npz" if only its name is known.
  [[nodiscard]] std::string label_of(const InputArray& array) const;
  [[nodiscard]] std::string label_of(const TargetArray& array) const;

  [[nodiscard]] std::size_t size() const;

  /// The examples [begin, end), in the same memory. Throws UsageError if the range exceeds the data.
  [[nodiscard]] Dataset slice(std::size_t begin, std::size_t end) const;

  /// Throws DataError unless inputs, targets and shapes agree, all numbers are finite, and class indices are in
  /// [0, classes).
  void validate(std::int64_t classes) const;
  /// The same for several arrays of targets, each with its number of classes.
  void validate(const std::vector<std::int64_t>& classes) const;

  /// Throws DataError for a NaN or infinite input.
  void validate_inputs() const;
};

}  // namespace lockstep
