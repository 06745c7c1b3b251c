// See npz_dataset.hpp.
#include "data/npz_dataset.hpp"

#include "core/join_words.hpp"
#include "core/lower_case.hpp"
#include "data/npz.hpp"
#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

namespace fs = std::filesystem;

std::vector<std::int32_t> to_classes(const NpyArray& array, const std::string& name) {
  const std::vector<std::int64_t> wide = to_integers(array);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const bool has_wrapped = array.type == NpyType::u8 && wide[i] < 0;
    if (has_wrapped || wide[i] < std::numeric_limits<std::int32_t>::min() ||
        wide[i] > std::numeric_limits<std::int32_t>::max()) {
      throw DataError(fmt::format(
          "label {} of {} is {}, which does not fit into 32 bits; correct it, or, if it is no class, "
          "save the targets as floats",
          i, name, has_wrapped ? fmt::to_string(static_cast<std::uint64_t>(wide[i])) : fmt::to_string(wide[i])));
    }
  }
  return {wide.begin(), wide.end()};
}

constexpr std::array splits{"train", "test", "val"};

/// The arrays that a command reads: to train, to evaluate, or to predict.
enum class Wanted { all, test, test_inputs };

/// The archive of a dataset, with the names of its arrays.
class DatasetArchive {
 public:
  DatasetArchive(std::span<const std::byte> bytes, std::string file, const ArrayNames& names, Wanted wanted)
      : npz_(bytes, file), file_(std::move(file)), names_(names) {
    require_known_arrays(wanted);
  }

  [[nodiscard]] bool has(const std::string& split) const {
    const std::vector<std::string> keys = keys_of(split);
    return std::ranges::any_of(keys, [this](const std::string& key) { return npz_.has(key); });
  }

  [[nodiscard]] Dataset read(const std::string& split) const {
    const std::vector<std::string> inputs = keys_of("x_" + split, names_.inputs);
    const std::vector<std::string> targets = keys_of("y_" + split, names_.targets);
    Dataset data;
    data.source = fmt::format("{} ({}, {})", file_, fmt::join(inputs, ", "), fmt::join(targets, ", "));
    Shape first;  // of the first array of inputs, all examples
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      NpyArray array = read_array(inputs[i]);
      if (i == 0) first = array.shape;
      if (array.shape.rank() < 1 || array.bytes.empty()) {
        refuse(inputs[i], array.shape, targets.front(), read_array(targets.front()).shape);
      }
      if (array.shape[0] != first[0]) {
        throw DataError(
            fmt::format("{}:{} has shape {} and {} has shape {}, but all inputs must have equally many "
                        "examples; save them again",
                        file_, inputs.front(), first.to_string(), inputs[i], array.shape.to_string()));
      }
      add_input(data, std::move(array), i, inputs[i]);
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const NpyArray array = read_array(targets[i]);
      if (array.shape.rank() < 1 || array.shape[0] != first[0] || array.bytes.empty()) {
        refuse(inputs.front(), first, targets[i], array.shape);
      }
      add_target(data, array, i, targets[i]);
    }
    read_weights(data, split, first[0]);
    return data;
  }

  [[nodiscard]] Dataset read_inputs(const std::string& split) const {
    const std::vector<std::string> keys = keys_of("x_" + split, names_.inputs);
    Dataset data;
    data.source = fmt::format("{}:{}", file_, fmt::join(keys, ", "));
    for (std::size_t i = 0; i < keys.size(); ++i) add_input(data, read_array(keys[i]), i, keys[i]);
    return data;
  }

 private:
  /// "x_train", or "x_train_NAME" for each name if there are several.
  [[nodiscard]] static std::vector<std::string> keys_of(const std::string& part,
                                                        const std::vector<std::string>& names) {
    if (names.size() < 2) return {part};
    std::vector<std::string> keys;
    keys.reserve(names.size());
    for (const std::string& name : names) keys.push_back(part + "_" + name);
    return keys;
  }
  /// Of inputs and targets.
  [[nodiscard]] std::vector<std::string> keys_of(const std::string& split) const {
    std::vector<std::string> keys = keys_of("x_" + split, names_.inputs);
    const std::vector<std::string> targets = keys_of("y_" + split, names_.targets);
    keys.insert(keys.end(), targets.begin(), targets.end());
    return keys;
  }

  /// "X_val", "validation_x", "y", "weights": as programs name inputs, targets and sample weights.
  [[nodiscard]] static bool looks_like_data(std::string_view key) {
    const std::string name = lower_case(std::string(key));
    return name == "x" || name == "y" || name.starts_with("x_") || name.starts_with("y_") || name.ends_with("_x") ||
           name.ends_with("_y") || name.find("weight") != std::string::npos;
  }

  /// What arrays may be called, in the order of the splits; also of those that a command does not read.
  [[nodiscard]] std::vector<std::string> known_keys(Wanted wanted) const {
    if (wanted == Wanted::test_inputs) return keys_of("x_test", names_.inputs);
    std::vector<std::string> known;
    std::vector<std::string> weights;
    for (const char* split : splits) {
      if (wanted == Wanted::test && split != std::string_view("test")) continue;
      const std::vector<std::string> keys = keys_of(split);
      known.insert(known.end(), keys.begin(), keys.end());
      weights.push_back(weights_key(split));
    }
    known.insert(known.end(), weights.begin(), weights.end());
    return known;
  }

  /// Refuses an array that nothing reads if its name says that it is a part of the data, or if it has as many numbers
  /// as there are examples. Others, such as the classes' names, may be there.
  void require_known_arrays(Wanted wanted) const {
    const std::vector<std::string> known = known_keys(Wanted::all);
    std::map<std::int64_t, std::string> lengths;  // of arrays, and one that has it
    for (const std::string& key : known) {
      if (const auto length = npz_.has(key) ? npz_.length_of(key) : std::nullopt) lengths.emplace(*length, key);
    }
    const bool has_known = !lengths.empty();
    for (const std::string& key : npz_.keys()) {
      if (std::ranges::find(known, key) != known.end()) {
        if (wanted == Wanted::all) require_examples_of(key);
        continue;
      }
      std::string as_many;
      if (!looks_like_data(key)) {
        const auto length = npz_.length_of(key);
        if (!length) continue;
        // Without arrays of known names, any that are equally long are examples.
        const auto other = has_known ? lengths.find(*length) : lengths.emplace(*length, key).first;
        if (other == lengths.end() || other->second == key) continue;
        as_many = fmt::format(", which has as many entries as {},", other->second);
      }
      refuse_name_of_one(key, "x_", "input", names_.inputs);
      refuse_name_of_one(key, "y_", "output", names_.targets);
      std::vector<std::string> names = known_keys(wanted);
      if (const std::string name = lower_case(key); std::ranges::find(names, name) != names.end()) names = {name};
      throw DataError(fmt::format("{}:{}{} would not be used; rename it to {}, or leave it out", file_, key, as_many,
                                  join_words(names, "or")));
    }
  }

  /// Refuses the name that the only input or output would have if the model has several. `what`: "input".
  void refuse_name_of_one(const std::string& key, const std::string& prefix, const char* what,
                          const std::vector<std::string>& names) const {
    if (names.size() < 2) return;
    for (const char* split : splits) {
      if (key != prefix + split) continue;
      throw DataError(fmt::format("{}:{} would not be used, because the model has the {}s {}; name the arrays {}",
                                  file_, key, what, join_words(names, "and"), join_words(keys_of(key, names), "and")));
    }
  }

  /// Refuses weights of examples that are not there.
  void require_examples_of(const std::string& key) const {
    for (const char* split : splits) {
      if (key != weights_key(split) || has(split)) continue;
      throw DataError(fmt::format("{}:{} would not be used, because there is no x_{}; add it, or leave the weights out",
                                  file_, key, split));
    }
  }

  [[nodiscard]] static std::string weights_key(const std::string& split) {
    return split == "train" ? "sample_weight" : "sample_weight_" + split;
  }

  [[nodiscard]] NpyArray read_array(const std::string& key) const {
    const bool is_one_of_several = names_.inputs.size() > 1 || names_.targets.size() > 1;
    if (is_one_of_several && !npz_.has(key)) {
      throw DataError(
          fmt::format("{} has no array {}, which the model needs; it has {}", file_, key, join_words(npz_.keys())));
    }
    return npz_.read(key);
  }

  /// What messages call an array.
  [[nodiscard]] std::string source_of(const std::string& key) const { return file_ + ":" + key; }

  [[noreturn]] void refuse(const std::string& inputs, const Shape& inputs_shape, const std::string& targets,
                           const Shape& targets_shape) const {
    const auto is_empty = [](const Shape& shape) { return shape.rank() > 0 && shape[0] == 0; };
    const auto is_last = [&] {
      return inputs_shape.rank() > 1 && inputs_shape[0] > 0 && inputs_shape.extents().back() == targets_shape[0];
    };
    std::string remedy = "save one label for every example";
    if (is_empty(inputs_shape) && is_empty(targets_shape)) {
      remedy = "there is no example; save at least one";
    } else if (targets_shape.rank() > 0 && is_last()) {
      remedy = fmt::format("put the examples first: numpy.moveaxis({}, -1, 0)", inputs);
    }
    throw DataError(fmt::format("{}:{} has shape {} and {} has shape {}; {}", file_, inputs, inputs_shape.to_string(),
                                targets, targets_shape.to_string(), remedy));
  }

  void add_input(Dataset& data, NpyArray array, std::size_t input, const std::string& key) const {
    data.inputs.push_back(to_input_array(std::move(array), source_of(key)));
    if (names_.inputs.size() > 1) data.inputs.back().name = names_.inputs[input];
  }

  void add_target(Dataset& data, const NpyArray& array, std::size_t output, const std::string& key) const {
    TargetArray& target = data.targets.emplace_back();
    target.source = source_of(key);
    if (names_.targets.size() > 1) target.name = names_.targets[output];
    const Shape shape = without_first(array.shape);
    // Keras' own datasets have labels of shape (n,) or (n, 1).
    if (is_integer(array.type) && shape.elements() == 1 && shape.rank() <= 1) {
      target.values = to_classes(array, target.source);
    } else {
      target.shape = shape;
      const SharedArray<float>& floats = target.values.emplace<SharedArray<float>>(to_floats(array));
      // Now, because one NaN makes floats of labels, which then differ in kind from other labels.
      require_finite(floats, shape, "the target", target.source);
    }
  }

  void read_weights(Dataset& data, const std::string& split, std::int64_t examples) const {
    const std::string key = weights_key(split);
    if (!npz_.has(key)) return;
    const NpyArray weights = npz_.read(key);
    if (weights.shape != Shape{examples} && weights.shape != Shape{examples, 1}) {
      throw DataError(
          fmt::format("{}:{} has shape {}, but there must be one weight for every example of x_{}; save "
                      "them again",
                      file_, key, weights.shape.to_string(), split));
    }
    data.sample_weights = to_floats(weights);
    data.axes_of_weights = weights.shape.rank();
  }

  NpzArchive npz_;
  std::string file_;
  const ArrayNames& names_;
};

/// Calls read(archive), which may keep nothing of the archive.
template <typename Read>
auto with_archive(const fs::path& path, const ArrayNames& names, Wanted wanted, const Read& read) {
  const std::vector<std::uint8_t> bytes = read_whole_file(path);
  return read(DatasetArchive(std::as_bytes(std::span(bytes)), path.string(), names, wanted));
}

}  // namespace

Shape without_first(const Shape& shape) {
  const auto extents = shape.extents();
  return Shape(std::vector<std::int64_t>(extents.begin() + 1, extents.end()));
}

InputArray to_input_array(NpyArray array, const std::string& source) {
  if (array.shape.rank() < 1 || array.bytes.empty()) {
    throw DataError(fmt::format("{} has shape {}, but needs a first dimension for at least one example", source,
                                array.shape.to_string()));
  }
  InputArray input{.shape = without_first(array.shape), .values = {}, .source = source};
  if (array.type == NpyType::u1) {
    input.values = std::move(array.bytes);
  } else {
    input.values = to_floats(array);
  }
  return input;
}

TrainTestSplit read_npz(const fs::path& path, const ArrayNames& names, TestSet test_set) {
  return with_archive(path, names, Wanted::all, [test_set](const DatasetArchive& archive) {
    TrainTestSplit split{.train = archive.read("train")};
    if (test_set == TestSet::required || archive.has("test")) split.test = archive.read("test");
    if (archive.has("val")) split.validation = archive.read("val");
    return split;
  });
}

Dataset read_npz_test_data(const fs::path& path, const ArrayNames& names) {
  return with_archive(path, names, Wanted::test, [](const DatasetArchive& archive) { return archive.read("test"); });
}

Dataset read_npz_test_inputs(const fs::path& path, const ArrayNames& names) {
  return with_archive(path, names, Wanted::test_inputs,
                      [](const DatasetArchive& archive) { return archive.read_inputs("test"); });
}

}  // namespace lockstep
