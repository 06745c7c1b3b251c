// An independent reference of training, simple and in double precision. Tests compare backends and the training loop
// with it; it shares no code with them. Its gradients are checked by central differences, its steps by hand-computed
// values and by Keras (tests/unit/layers/reference_*test.cpp).
#pragma once

#include "support/reference_layers.hpp"

#include <lockstep/layers/architecture.hpp>
#include <lockstep/losses/losses.hpp>
#include <lockstep/optimizers/optimizers.hpp>

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
  double correct = 0;  ///< of an example with several vectors: the share of them
};

class ReferenceModel {
 public:
  /// `initialize` draws the weights from `seed`, which also keys Dropout.
  ReferenceModel(Architecture model, Loss loss, Optimizer optimizer, std::uint64_t seed = 0);

  /// The model's outputs in inference for n examples, [n, outputs] in Keras' order.
  Values predict(std::span<const double> inputs, std::int64_t n);

  /// Sums of losses and correct predictions in inference. Targets are [n, vectors] class indices for
  /// SparseCategoricalCrossentropy, otherwise [n, outputs]. A vector has the outputs along the last axis.
  Sums evaluate(std::span<const double> inputs, std::span<const double> targets, std::int64_t n);

  /// One step on n examples, each with all inputs in the model's order. They are the first n of a global batch. The
  /// gradient is that of the sum of losses divided by `global_batch`. `replicas` are the replicas' sizes, which add up
  /// to n; empty means one replica.
  Sums train_step(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                  std::int64_t global_batch, const std::vector<std::int64_t>& replicas = {});

  /// The first half of train_step: forward and backward. Changes only gradients().
  Sums compute_gradients(std::span<const double> inputs, std::span<const double> targets, std::int64_t n,
                         std::int64_t global_batch, const std::vector<std::int64_t>& replicas = {});

  /// The second half: updates moving statistics, weights and slots.
  void apply_gradients();

  /// All parameters of the model, in Keras' order and layout.
  [[nodiscard]] std::vector<Values>& weights() noexcept { return weights_; }

  /// Gradients of the losses without penalties, in the order of weights(); zeros for layers that are not trainable. For
  /// moving statistics, the step's
  /// statistic, averaged over the replicas that have examples.
  [[nodiscard]] const std::vector<Values>& gradients() const noexcept { return gradients_; }

  /// The same with the derivatives of the regularizers' penalties.
  [[nodiscard]] std::vector<Values> penalized_gradients() const;

  /// Those after the optimizer's accumulation and clipping.
  [[nodiscard]] std::vector<Values> clipped_gradients();

  /// slots()[parameter][slot], in Keras' order. Empty for non-trainable parameters.
  [[nodiscard]] std::vector<std::vector<Values>>& slots() noexcept { return slots_; }

  /// Number of completed steps.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }

  void set_learning_rate(double rate) { lockstep::set_learning_rate(optimizer_, rate); }

  /// Weighs the examples of the batches that follow; empty: all alike. Without weights the reduction
  /// mean_with_sample_weight is not defined here.
  void weigh(Values sample_weights) { sample_weights_ = std::move(sample_weights); }

  /// Replaces src/core/dropout_mask.hpp as the rule for which elements Dropout keeps.
  void set_dropout(KeepElement keep) { keep_ = std::move(keep); }

 private:
  /// Applies the constraint of a parameter, if it has one.
  void constrain(std::size_t parameter);

  Values forward(const Pass& pass, std::span<const double> inputs);
  [[nodiscard]] std::size_t input_width() const;  // elements of an example's inputs
  [[nodiscard]] Values input_of(int call, std::span<const double> inputs) const;
  void weigh_statistics(const std::vector<Values>& before, int layer, int later_calls);
  void backward(Values gradient);
  [[nodiscard]] std::pair<std::size_t, std::size_t> parameters_of(int layer) const;  // the first and their number

  /// Adds to the sums. Returns the gradient of the losses with respect to the outputs. `first`: the number of the first
  /// example in the batch.
  Values judge(std::span<const double> outputs, std::span<const double> targets, std::size_t first, Sums& sums) const;
  [[nodiscard]] double total_weight() const;
  [[nodiscard]] double penalty() const;
  void add_activity_gradient(std::size_t call, Values& gradient) const;
  [[nodiscard]] std::vector<double*> slots_at(std::size_t parameter, std::size_t element);
  [[nodiscard]] std::int64_t target_width() const;

  Architecture model_;
  Loss loss_;
  Optimizer optimizer_;
  std::uint64_t seed_;
  std::uint64_t step_ = 0;
  KeepElement keep_;
  Values sample_weights_;
  std::vector<std::unique_ptr<Layer>> calls_;       // one object for each call, which keeps what backward needs
  std::vector<Regularizer> activity_regularizers_;  // by call
  std::vector<Values> penalized_;                   // by call: the output, if it has a penalty
  double activity_penalty_ = 0;                     // of all examples since it was reset
  double activity_scale_ = 0;                       // of its gradient
  std::vector<std::size_t> first_parameter_;        // of each layer, and one past the last
  std::vector<ParameterInfo> parameters_;
  std::vector<double> momenta_;  // of moving statistics
  std::vector<bool> frozen_;     // by parameter: whether training changes nothing about it
  std::vector<Values> weights_;
  std::vector<Values> gradients_;
  std::vector<std::vector<Values>> slots_;
};

}  // namespace lockstep::reference
