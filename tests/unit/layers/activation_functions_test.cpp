// Rows of the activation table: NaN passes through, unless Keras' formula hides it.
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "layers/merge_functions.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

using namespace lockstep;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("activation functions pass NaN on") {
  for (std::size_t i = 0; i < ActivationFunction::num_kinds; ++i) {
    const auto kind = static_cast<ActivationFunction::Kind>(i);
    visit_activation(kind, [&](auto row) {
      if constexpr (decltype(row)::derivative != Derivative::none) {
        CAPTURE(row.keras_name);
        const bool is_hidden =
            kind == ActivationFunction::Kind::hard_shrink || kind == ActivationFunction::Kind::soft_shrink;
        CHECK(std::isnan(row.value(not_a_number, named_activation(kind))) != is_hidden);
      }
    });
  }
}

TEST_CASE("derivatives at the ends of linear parts are those of Keras on TensorFlow") {
  const auto derivative = [](const ActivationFunction& function, float x) {
    float found = not_a_number;
    visit_activation(function.kind, [&](auto row) {
      if constexpr (decltype(row)::derivative == Derivative::from_input) found = row.gradient(x, 1.0F, function);
    });
    return found;
  };
  const ActivationFunction hard_tanh = named_activation(ActivationFunction::Kind::hard_tanh);
  for (const float x : {-1.0F, 0.5F, 1.0F}) CHECK(derivative(hard_tanh, x) == 1.0F);
  for (const float x : {-1.001F, 1.001F}) CHECK(derivative(hard_tanh, x) == 0.0F);
  const ActivationFunction clipped =
      LayerTraits<ReLU>::function_of(ReLU({.max_value = 2.5, .negative_slope = 0.125, .threshold = 0.5}));
  CHECK(derivative(clipped, 0.25F) == 0.125F);
  CHECK(derivative(clipped, 0.5F) == 0.0F);
  for (const float x : {0.75F, 2.5F}) CHECK(derivative(clipped, x) == 1.0F);
  CHECK(derivative(clipped, 2.75F) == 0.0F);
}

TEST_CASE("merges pass NaN on, from either side") {
  for (const auto& [a, b] : {std::pair{not_a_number, 1.0F}, std::pair{1.0F, not_a_number}}) {
    CHECK(std::isnan(merged<MergeFunction::maximum>(a, b)));
    CHECK(std::isnan(merged<MergeFunction::minimum>(a, b)));
    CHECK(std::isnan(merged<MergeFunction::multiply>(a, b)));
  }
  CHECK(merged<MergeFunction::maximum>(1, 2) == 2);
  CHECK(merged<MergeFunction::minimum>(1, 2) == 1);
}
