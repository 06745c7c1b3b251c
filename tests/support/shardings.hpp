// Shared by the tests of tensor-parallel models: trains tensor parallel and data parallel, and compares the results.
#pragma once

#include "core/environment.hpp"
#include "support/catch.hpp"
#include "support/convolutions.hpp"
#include "support/examples.hpp"
#include "support/ranks.hpp"

#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::testing {

inline const std::filesystem::path directory = std::filesystem::temp_directory_path() / "lockstep-tensor-parallel-test";

/// Variables that options_for() reads: links and kernels to shard for, a sharding by its code, and a layout of images.
inline constexpr const char* link_variable = "LOCKSTEP_ASSUMED_HARDWARE";
inline constexpr const char* splits_variable = "LOCKSTEP_SHARDING";
inline constexpr const char* layout_variable = "LOCKSTEP_LAYOUT";

[[nodiscard]] inline Options options_for(Parallelism parallelism, int batch = 10) {
  return {.model_dir = directory,
          .global_batch_size = batch,
          .seed = 7,
          .convolutions = convolutions_under_test(),
          .parallelism = parallelism,
          .verbose = 0,
          .assumed_hardware = value_of(current_environment(), link_variable),
          .sharding = value_of(current_environment(), splits_variable),
          .layout = value_of(current_environment(), layout_variable),
          .program = "tensor_parallel_test"};
}

[[nodiscard]] inline Loss loss_of(const Sequential& architecture) {
  const auto* dense = std::get_if<Dense>(&architecture.layers().back().layer);
  return SparseCategoricalCrossentropy({.from_logits = dense == nullptr || dense->activation != softmax});
}

[[nodiscard]] inline std::string describe_layers(const Sequential& model) {
  std::string text;
  for (const LayerInfo& layer : model.layers()) text += layer.class_name + layer.output_shape.to_string() + " ";
  return text;
}

struct Outcome {
  std::vector<NamedTensor> weights;
  History history;
  Logs evaluation;
  std::vector<float> outputs;
};

[[nodiscard]] inline Outcome train(const Sequential& architecture, const Optimizer& optimizer, const Examples& examples,
                                   const Options& options, int epochs) {
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(architecture);
  model.compile({.optimizer = optimizer, .loss = loss_of(architecture), .metrics = {accuracy}});
  Outcome outcome;
  outcome.history = model.fit(examples.data, {.epochs = epochs});
  outcome.weights = model.weights();
  outcome.evaluation = model.evaluate(examples.data);
  outcome.outputs = model.predict(examples.data);
  return outcome;
}

/// The L2 distance of a and b relative to the norm of b.
[[nodiscard]] inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
    scale += std::pow(b[i], 2);
  }
  return std::sqrt(sum) / std::max(std::sqrt(scale), 0.1);
}

inline void check_near(const std::vector<NamedTensor>& weights, const std::vector<NamedTensor>& expected,
                       double tolerance) {
  REQUIRE(weights.size() == expected.size());
  for (std::size_t p = 0; p < weights.size(); ++p) {
    INFO(weights[p].name);
    REQUIRE(weights[p].shape == expected[p].shape);
    CHECK(relative_distance(weights[p].values, expected[p].values) < tolerance);
  }
}

inline void check_near(const Outcome& tensor, const Outcome& data, double tolerance) {
  check_near(tensor.weights, data.weights, tolerance);
  REQUIRE(tensor.history.epochs.size() == data.history.epochs.size());
  for (std::size_t e = 0; e < tensor.history.epochs.size(); ++e) {
    CHECK(tensor.history["loss"][e] == Approx(data.history["loss"][e]).epsilon(tolerance));
  }
  CHECK(tensor.evaluation.at("loss") == Approx(data.evaluation.at("loss")).epsilon(tolerance));
  CHECK(relative_distance(tensor.outputs, data.outputs) < tolerance);
}

/// Trains data parallel for a few steps and for more than a hundred, and checks tensor-parallel runs against both.
class ParallelismComparison {
 public:
  ParallelismComparison(const Sequential& model, const Optimizer& optimizer)
      : model_(model),
        optimizer_(optimizer),
        examples_(make_examples(model, loss_of(model), 37, 3)),
        few_(run(Parallelism::data, few_epochs)),
        many_(run(Parallelism::data, many_epochs)) {}

  /// Returns the tensor-parallel outcome.
  Outcome check_tensor_parallel() const {
    check_near(run(Parallelism::tensor, few_epochs), few_, 1e-4);
    Outcome many = run(Parallelism::tensor, many_epochs);
    check_near(many, many_, has_kinks() ? 5e-2 : 2e-3);
    CHECK(equal_on_all_ranks(many.weights));
    return many;
  }

  [[nodiscard]] Outcome run(Parallelism parallelism, int epochs) const {
    return train(model_, optimizer_, examples_, options_for(parallelism), epochs);
  }

  // An epoch has three batches of 10 examples and one of 7.
  static constexpr int few_epochs = 2;
  static constexpr int many_epochs = 26;

 private:
  /// Rounding can move a value across a kink, after which gradients differ.
  [[nodiscard]] bool has_kinks() const { return describe_layers(model_).find("MaxPooling2D") != std::string::npos; }

  const Sequential& model_;
  const Optimizer& optimizer_;
  Examples examples_;
  Outcome few_;
  Outcome many_;
};

}  // namespace lockstep::testing
