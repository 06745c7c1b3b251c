// Trains the model of a file step by step and predicts with it, for real Keras to judge.
//   interop_train_steps MODEL DATA.npz DIRECTORY BATCH REPLICAS STEP...
// DATA.npz holds `inputs` and, where there is training, `targets`. Step s is made on global batch number s of the
// examples in their order. The chief prints the loss of every step; after each STEP (ascending; 0: before the first) it
// leaves STEP.keras and the predictions for all inputs, STEP.f32, in DIRECTORY.
#include "checkpoint/model_file.hpp"
#include "data/input_file.hpp"
#include "data/npz.hpp"

#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

template <typename T>
std::vector<T> values_of(const NpyArray& array) {
  std::vector<T> values(static_cast<std::size_t>(array.shape.elements()));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

/// All extents but the first.
Shape one_of(const Shape& all) {
  return Shape(std::vector<std::int64_t>(all.extents().begin() + 1, all.extents().end()));
}

Dataset read_data(const std::filesystem::path& path, bool with_targets) {
  const std::vector<std::uint8_t> file = read_whole_file(path);
  const NpzArchive archive(std::as_bytes(std::span(file)), path.string());
  const NpyArray inputs = archive.read("inputs");
  if (inputs.type != NpyType::f4) throw DataError(path.string() + ": inputs must be float32");
  Dataset data;
  data.source = path.string();
  data.example_shape = one_of(inputs.shape);
  data.inputs = values_of<float>(inputs);
  if (!with_targets) return data;
  const NpyArray targets = archive.read("targets");
  data.target_shape = one_of(targets.shape);
  if (targets.type == NpyType::i4) {
    data.targets = values_of<std::int32_t>(targets);
  } else if (targets.type == NpyType::f4) {
    data.targets = values_of<float>(targets);
  } else {
    throw DataError(path.string() + ": targets must be int32 or float32");
  }
  return data;
}

CompileOptions compilation_of(const SavedModel& saved, bool trains) {
  CompileOptions options{.loss = MeanSquaredError()};  // to predict, any loss will do, and this one fits any output
  if (!saved.training) return options;
  options.optimizer = saved.training->optimizer;
  options.metrics = saved.training->metrics;
  if (trains) options.loss = saved.training->loss;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::cerr << "usage: interop_train_steps MODEL DATA.npz DIRECTORY BATCH REPLICAS STEP...\n";
    return static_cast<int>(ExitCode::usage);
  }
  const std::filesystem::path directory = argv[3];
  std::vector<int> marks;
  for (int i = 6; i < argc; ++i) marks.push_back(std::atoi(argv[i]));
  const bool trains = marks.back() > 0;

  MultiWorkerMirroredStrategy strategy{{.model_dir = directory,
                                        .global_batch_size = std::atoi(argv[4]),
                                        .device = Device::cpu,
                                        .replicas = std::atoi(argv[5]),
                                        .verbose = 0}};
  const SavedModel saved = load_model(argv[1]);
  const Dataset data = read_data(argv[2], trains);
  auto model = strategy.build(saved.architecture);
  model.compile(compilation_of(saved, trains));
  std::vector<Variable> weights;
  for (const SavedTensor& tensor : saved.weights) weights.push_back({tensor.name, tensor.shape, tensor.values});
  model.set_weights(weights);

  const auto batch = static_cast<std::size_t>(std::atoi(argv[4]));
  std::cout << std::setprecision(std::numeric_limits<double>::max_digits10);
  for (int step = 0; step <= marks.back(); ++step) {
    if (step > 0) {
      const auto position = static_cast<std::uint64_t>(step - 1) * batch;
      const StepMetrics metrics =
          model.train_step({.data = &data, .position = position, .size = batch, .shuffle = false});
      if (strategy.is_chief()) std::cout << metrics.loss() << '\n';
    }
    if (std::find(marks.begin(), marks.end(), step) == marks.end()) continue;
    const std::string name = std::to_string(step);
    model.save(directory / (name + ".keras"));
    const std::vector<float> predictions = model.predict(data);
    if (!strategy.is_chief()) continue;
    const auto bytes = static_cast<std::streamsize>(predictions.size() * sizeof(float));
    std::ofstream file(directory / (name + ".f32"), std::ios::binary);
    if (!file.write(reinterpret_cast<const char*>(predictions.data()), bytes).flush()) {
      throw IoError("cannot write " + (directory / (name + ".f32")).string());
    }
  }
  return 0;
}
