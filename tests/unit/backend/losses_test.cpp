// Every loss against the reference, with its options, reductions and weights of examples.
#include "checked_model.hpp"
#include "core/fields.hpp"
#include "core/variant_types.hpp"
#include "losses/loss_registry.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/convolution.hpp>
#include <lockstep/layers/sequential.hpp>

#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Each loss with its defaults, with other values of its options, and with clipped probabilities.
std::vector<Loss> all_losses() {
  std::vector<Loss> all;
  for_each_alternative<Loss>([&all]<typename T>(std::type_identity<T>) {
    all.emplace_back(T());
    T other;
    if constexpr (requires { other.from_logits; }) other.from_logits = true;
    if constexpr (requires { other.label_smoothing; }) other.label_smoothing = 0.2;
    if constexpr (requires { other.gamma; }) other.gamma = 1.5;
    if constexpr (requires { other.apply_class_balancing; }) other.apply_class_balancing = true;
    if constexpr (requires { other.delta; }) other.delta = 0.3;
    all.emplace_back(other);
    if constexpr (requires { other.clips_probabilities; }) all.emplace_back(T{.clips_probabilities = true});
  });
  return all;
}

bool takes_logits(const Loss& loss) {
  return std::visit(
      [](const auto& any) {
        if constexpr (requires { any.from_logits; }) return any.from_logits;
        return false;
      },
      loss);
}

/// Ends in outputs between 0 and 1, which every loss is defined for, or in logits.
Sequential model_for(const Loss& loss) {
  return Sequential{Input({6}), Dense(7, {.activation = activations::tanh}),
                    Dense(4, {.activation = takes_logits(loss) ? linear : sigmoid})};
}

/// The same with a vector of outputs for each pixel.
Sequential pixel_model_for(const Loss& loss, int outputs) {
  return Sequential{Input({3, 2, 4}), Conv2D(16, 3, {.padding = Padding::same, .activation = activations::tanh}),
                    Conv2D(outputs, 1, {.activation = takes_logits(loss) ? linear : sigmoid})};
}

void check_loss(const Sequential& architecture, const Loss& loss, const CheckedModelOptions& options) {
  INFO(keras_name(loss) << (takes_logits(loss) ? " from logits" : "") << ", " << keras_name(reduction_of(loss))
                        << (options.weighted ? ", weighted" : ""));
  CheckedModelOptions its = options;
  its.loss = loss;
  CheckedModel model(architecture, its);
  model.train({8});
  model.train({3});
  model.infer(5);
}

}  // namespace

TEST_CASE("every loss matches the reference") {
  for (Loss loss : all_losses()) {
    check_loss(model_for(loss), loss, {});
    for (const Reduction reduction :
         {Reduction::sum_over_batch_size, Reduction::sum, Reduction::mean_with_sample_weight}) {
      std::visit([&](auto& any) { any.reduction = reduction; }, loss);
      check_loss(model_for(loss), loss, {.optimizer = SGD({.learning_rate = 0.01}), .weighted = true});
    }
  }
}

TEST_CASE("every loss of several vectors per example matches the reference") {
  for (const Loss& loss : all_losses()) {
    for (const int outputs : {4, 16}) {  // of 16, blocked layouts are possible
      check_loss(pixel_model_for(loss, outputs), loss, {});
      check_loss(pixel_model_for(loss, outputs), loss,
                 {.optimizer = SGD({.learning_rate = 0.01}), .weighted = true, .layout = Layout::nChw16c});
    }
  }
}

TEST_CASE("hinge losses take targets of one kind") {
  const std::vector<float> bits{0, 1, 1};
  const std::vector<float> signs{-1, 1};
  const std::vector<float> mixed{-1, 0, 1};
  const std::vector<float> shares{0.5F, 1};
  for (const Loss& loss : {Loss(Hinge()), Loss(SquaredHinge())}) {
    CHECK_NOTHROW(check_targets(loss, bits, "data"));
    CHECK_NOTHROW(check_targets(loss, signs, "data"));
    CHECK_THROWS_AS(check_targets(loss, mixed, "data"), DataError);
    CHECK_THROWS_AS(check_targets(loss, shares, "data"), DataError);
  }
  CHECK_NOTHROW(check_targets(MeanSquaredError(), mixed, "data"));
}

TEST_CASE("binary crossentropies take targets from 0 to 1") {
  const std::vector<float> bits{0, 1, 1};
  const std::vector<float> signs{-1, 1};
  const std::vector<float> shares{0.5F, 1};
  const std::vector<float> from_1{1, 2, 2, 1};
  for (const Loss& loss : {Loss(BinaryCrossentropy()), Loss(BinaryFocalCrossentropy())}) {
    CHECK_NOTHROW(check_targets(loss, bits, "data"));
    CHECK_NOTHROW(check_targets(loss, shares, "data"));
    CHECK(message_of<DataError>([&] { check_targets(loss, signs, "data"); }).find("holds -1; give (label + 1) / 2") !=
          std::string::npos);
    CHECK(message_of<DataError>([&] { check_targets(loss, from_1, "data"); }).find("holds 2; subtract 1") !=
          std::string::npos);
  }
}
