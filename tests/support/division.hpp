// What the tests of models that are divided by features share: training by features and by examples, and whether the
// same comes out.
#pragma once

#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/ranks.hpp"

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

inline const std::filesystem::path directory = std::filesystem::temp_directory_path() / "lockstep-division-test";

[[nodiscard]] inline Options options_for(Division division, int batch = 10) {
  return {.model_dir = directory,
          .global_batch_size = batch,
          .seed = 7,
          .division = division,
          .verbose = 0,
          .program = "division_test"};
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
  std::vector<Variable> weights;
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

/// How far a lies from b, by b's norm.
[[nodiscard]] inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
    scale += std::pow(b[i], 2);
  }
  return std::sqrt(sum) / std::max(std::sqrt(scale), 0.1);
}

inline void check_near(const std::vector<Variable>& weights, const std::vector<Variable>& expected, double tolerance) {
  REQUIRE(weights.size() == expected.size());
  for (std::size_t p = 0; p < weights.size(); ++p) {
    INFO(weights[p].name);
    REQUIRE(weights[p].shape == expected[p].shape);
    CHECK(relative_distance(weights[p].values, expected[p].values) < tolerance);
  }
}

inline void check_near(const Outcome& features, const Outcome& examples, double tolerance) {
  check_near(features.weights, examples.weights, tolerance);
  REQUIRE(features.history.epochs.size() == examples.history.epochs.size());
  for (std::size_t e = 0; e < features.history.epochs.size(); ++e) {
    CHECK(features.history["loss"][e] == Approx(examples.history["loss"][e]).epsilon(tolerance));
  }
  CHECK(features.evaluation.at("loss") == Approx(examples.evaluation.at("loss")).epsilon(tolerance));
  CHECK(relative_distance(features.outputs, examples.outputs) < tolerance);
}

/// A few steps and more than a hundred by examples, and whether those by features are the same.
class HundredSteps {
 public:
  HundredSteps(const Sequential& model, const Optimizer& optimizer)
      : model_(model),
        optimizer_(optimizer),
        examples_(make_examples(model, loss_of(model), 37, 3)),
        few_(run(Division::examples, few_epochs)),
        many_(run(Division::examples, many_epochs)) {}

  /// Returns what came out by features.
  Outcome check_by_features() const {
    check_near(run(Division::features, few_epochs), few_, 1e-4);
    Outcome many = run(Division::features, many_epochs);
    check_near(many, many_, has_kinks() ? 5e-2 : 2e-3);
    CHECK(equal_everywhere(many.weights));
    return many;
  }

  [[nodiscard]] Outcome run(Division division, int epochs) const {
    return train(model_, optimizer_, examples_, options_for(division), epochs);
  }

  /// Of three batches of 10 and one of 7.
  static constexpr int few_epochs = 2;
  static constexpr int many_epochs = 26;

 private:
  /// Where rounding decides on which side of a kink a value lies, its gradient is another one from then on.
  [[nodiscard]] bool has_kinks() const { return describe_layers(model_).find("MaxPooling2D") != std::string::npos; }

  const Sequential& model_;
  const Optimizer& optimizer_;
  Examples examples_;
  Outcome few_;
  Outcome many_;
};

}  // namespace lockstep::testing
