// An independent reference of training: plain, slow and in double precision, it says what a step must compute. Backends
// and the training loop are tested against it; it shares no code with them. Its own gradients are proved by central
// differences, its steps by hand-computed values and by Keras' own (tests/unit/nn/reference_*_test.cpp).
#pragma once

#include "support/reference_layers.hpp"

#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/optimizers.hpp>
#include <lockstep/nn/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::reference {

/// Sums over the examples of a batch.
struct Sums {
  double loss_sum = 0;
  std::int64_t correct = 0;
};

class ReferenceModel {
 public:
  /// Weights begin as `initialize` makes them of `seed`, which is also Dropout's.
  ReferenceModel(Sequential model, Loss loss, Optimizer optimizer, std::uint64_t seed = 0);

  /// The model's output in inference for n examples, one after the other (Keras order).
  Values predict(std::span<const double> inputs, std::int64_t n);

  /// Loss and hits in inference. Targets are n class indices for SparseCategoricalCrossentropy, else n x outputs.
  Sums evaluate(std::span<const double> inputs, std::span<const double> targets, std::int64_t n);

  /// One step on n examples, the first n places of a global batch of `global_batch`: the gradient is that of the sum
  /// over the examples / global_batch. `replicas` are the sizes of the slices and add up to n; none: one slice.
  Sums train_step(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                  std::int64_t global_batch, const std::vector<std::int64_t>& replicas = {});

  /// The first half of train_step: forward in training and backward. Changes nothing but gradients().
  Sums compute_gradients(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                         std::int64_t global_batch, const std::vector<std::int64_t>& replicas = {});

  /// The second half: moving statistics, weights and slots step on.
  void apply_gradients();

  /// All parameters of the model, in Keras' order and layout.
  [[nodiscard]] std::vector<Values>& weights() noexcept { return weights_; }

  /// Beside the weights. For moving statistics: the step's statistic, averaged over the replicas that had examples.
  [[nodiscard]] const std::vector<Values>& gradients() const noexcept { return gradients_; }

  /// The same as the optimizer takes them.
  [[nodiscard]] std::vector<Values> clipped_gradients() const;

  /// slots()[parameter][slot], slots as in Keras: momentum; momentum, velocity; velocity, momentum, average_gradient
  /// (those that are used). Empty for parameters that are not trained.
  [[nodiscard]] std::vector<std::vector<Values>>& slots() noexcept { return slots_; }

  /// Steps done; settable, for a resumed run.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  void set_step(std::uint64_t step) noexcept { step_ = step; }

  void set_learning_rate(double rate) { lockstep::set_learning_rate(optimizer_, rate); }

  /// Replaces src/core/dropout_mask.hpp as the judge of what Dropout keeps.
  void set_dropout(KeepElement keep) { keep_ = std::move(keep); }

 private:
  Values forward(const Pass& pass, std::span<const double> inputs);
  void backward(Values gradient);

  /// Adds to the sums; returns each loss' gradient by the output.
  Values judge(std::span<const double> outputs, std::span<const double> targets, Sums& sums) const;
  [[nodiscard]] std::int64_t target_width() const;

  Sequential model_;
  Loss loss_;
  Optimizer optimizer_;
  std::uint64_t seed_;
  std::uint64_t step_ = 0;
  KeepElement keep_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::size_t> first_parameter_;  // of each layer, and one past the last
  std::vector<ParameterInfo> parameters_;
  std::vector<double> momenta_;  // of moving statistics
  std::vector<Values> weights_;
  std::vector<Values> gradients_;
  std::vector<std::vector<Values>> slots_;
};

}  // namespace lockstep::reference
