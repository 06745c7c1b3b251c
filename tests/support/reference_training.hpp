// Trains the reference as Model trains: on the same batches in the same order, split into the same replicas.
#pragma once

#include "data/sampler.hpp"
#include "support/examples.hpp"
#include "support/reference.hpp"

#include <lockstep/layers/architecture.hpp>
#include <lockstep/training/model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

/// Sums over the examples of a step or of several.
struct ReferenceMetrics {
  double loss_sum = 0;
  double num_correct = 0;
  double num_examples = 0;

  [[nodiscard]] double loss() const { return loss_sum / num_examples; }
  [[nodiscard]] double accuracy() const { return num_correct / num_examples; }
  ReferenceMetrics& operator+=(const ReferenceMetrics& other) {
    loss_sum += other.loss_sum;
    num_correct += other.num_correct;
    num_examples += other.num_examples;
    return *this;
  }
};

struct ReferenceTraining {
  reference::ReferenceModel model;
  const Examples& examples;
  std::uint64_t seed;
  std::size_t replicas;

  ReferenceTraining(const Architecture& architecture, const CompileOptions& compile, const Examples& with,
                    std::uint64_t its_seed, std::size_t its_replicas)
      : model(architecture, compile.loss, compile.optimizer, its_seed),
        examples(with),
        seed(its_seed),
        replicas(its_replicas) {}

  ReferenceMetrics train_step(std::uint64_t position, std::size_t size, bool shuffle = true) {
    const std::vector<std::uint32_t> drawn = draw(position, size, shuffle);
    std::vector<std::int64_t> slices;
    for (std::size_t r = 0; r < replicas; ++r) {
      slices.push_back(static_cast<std::int64_t>(slice_of(size, r, replicas).size()));
    }
    const auto count = static_cast<std::int64_t>(size);
    const reference::Sums sums =
        model.train_step(examples.inputs_of(drawn), examples.targets_of(drawn), count, count, slices);
    return {sums.loss_sum, static_cast<double>(sums.correct), static_cast<double>(size)};
  }

  /// Returns the metrics of each epoch. `steps_per_epoch` 0 means one pass over the data per epoch.
  std::vector<ReferenceMetrics> fit(int epochs, std::size_t batch, std::size_t steps_per_epoch = 0) {
    std::vector<ReferenceMetrics> history;
    const std::size_t count = examples.data.size();
    const std::size_t steps = steps_per_epoch > 0 ? steps_per_epoch : (count + batch - 1) / batch;
    for (std::size_t epoch = 0; epoch < static_cast<std::size_t>(epochs); ++epoch) {
      history.emplace_back();
      for (std::size_t step = 0; step < steps; ++step) {
        const std::size_t position =
            steps_per_epoch > 0 ? (epoch * steps + step) * batch : epoch * count + step * batch;
        history.back() += train_step(position, steps_per_epoch > 0 ? batch : std::min(batch, count - step * batch));
      }
    }
    return history;
  }

  ReferenceMetrics evaluate() {
    const std::size_t count = examples.data.size();
    const reference::Sums sums = model.evaluate(examples.inputs, examples.targets, static_cast<std::int64_t>(count));
    return {sums.loss_sum, static_cast<double>(sums.correct), static_cast<double>(count)};
  }

  reference::Values predict() {
    return model.predict(examples.inputs, static_cast<std::int64_t>(examples.data.size()));
  }

  /// The largest relative error of any variable, and the variable's name.
  [[nodiscard]] std::pair<double, std::string> compare(const std::vector<NamedTensor>& weights) {
    std::pair<double, std::string> worst{0, "none"};
    if (weights.size() != model.weights().size()) return {1, "their number"};
    for (std::size_t p = 0; p < weights.size(); ++p) {
      // The minimum keeps biases near zero from having large relative errors.
      const double scale = std::max(norm(model.weights()[p]), 0.1);
      worst = std::max(worst, {distance(weights[p].values, model.weights()[p]) / scale, weights[p].name});
    }
    return worst;
  }

 private:
  [[nodiscard]] std::vector<std::uint32_t> draw(std::uint64_t position, std::size_t size, bool shuffle) const {
    std::vector<std::uint32_t> drawn(size);
    Sampler(examples.data.size(), seed, shuffle).read(position, drawn);
    return drawn;
  }
};

}  // namespace lockstep::testing
