// Trains a file's model step by step and predicts with it, for comparison with real Keras.
//   interop_train_steps MODEL DATA.npz DIRECTORY BATCH REPLICAS STEP...
// DATA.npz holds `inputs` and, for training, `targets`. Step s uses global batch s of the examples in file order. The
// chief prints the loss of every step. After each STEP (ascending; 0: before training) it writes STEP.keras and the
// predictions for all inputs, STEP.f32 (one output after the other), to DIRECTORY.
#include "checkpoint/model_file.hpp"
#include "data/npz.hpp"
#include "data/sequential_file.hpp"

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

/// The shape of one example: all dimensions but the first.
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
  data.inputs.push_back({one_of(inputs.shape), values_of<float>(inputs)});
  if (!with_targets) return data;
  const NpyArray targets = archive.read("targets");
  TargetArray& target = data.targets.emplace_back();
  target.shape = one_of(targets.shape);
  if (targets.type == NpyType::i4) {
    target.values = values_of<std::int32_t>(targets);
  } else if (targets.type == NpyType::f4) {
    target.values = values_of<float>(targets);
  } else {
    throw DataError(path.string() + ": targets must be int32 or float32");
  }
  return data;
}

CompileOptions resolve_compile_options(const ModelData& saved, bool trains) {
  CompileOptions options{.loss =
                             MeanSquaredError()};  // for predictions any loss works, and this one accepts any output
  if (!saved.compile_state) return options;
  options.optimizer = saved.compile_state->optimizer;
  if (trains) {
    options.loss = saved.compile_state->loss;
    options.metrics = saved.compile_state->metrics;
  }
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
                                        .batch_norm_replicas = std::atoi(argv[5]),
                                        .verbose = 0}};
  const ModelData saved = load_model(argv[1]);
  const Dataset data = read_data(argv[2], trains);
  auto model = strategy.build(saved.architecture);
  model.compile(resolve_compile_options(saved, trains));
  std::vector<NamedTensor> weights;
  for (const NamedTensor& tensor : saved.weights) weights.push_back({tensor.name, tensor.shape, tensor.values});
  model.set_weights(weights);

  const auto batch = static_cast<std::size_t>(std::atoi(argv[4]));
  std::cout << std::setprecision(std::numeric_limits<double>::max_digits10);
  for (int step = 0; step <= marks.back(); ++step) {
    if (step > 0) {
      const auto position = static_cast<std::uint64_t>(step - 1) * batch;
      const MetricSums metrics =
          model.train_step({.data = &data, .position = position, .size = batch, .shuffle = false});
      if (strategy.is_chief()) std::cout << metrics.loss() << '\n';
    }
    if (std::find(marks.begin(), marks.end(), step) == marks.end()) continue;
    const std::string name = std::to_string(step);
    model.save(directory / (name + ".keras"));
    std::vector<float> predictions;
    for (const std::vector<float>& output : model.predict_outputs(data))
      predictions.insert(predictions.end(), output.begin(), output.end());
    if (!strategy.is_chief()) continue;
    const auto bytes = static_cast<std::streamsize>(predictions.size() * sizeof(float));
    std::ofstream file(directory / (name + ".f32"), std::ios::binary);
    if (!file.write(reinterpret_cast<const char*>(predictions.data()), bytes).flush()) {
      throw IoError("cannot write " + (directory / (name + ".f32")).string());
    }
  }
  return 0;
}
