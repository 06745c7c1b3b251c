// Rows of the activation table: NaN passes through, unless Keras' formula hides it.
#include "layers/activation_functions.hpp"
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

TEST_CASE("merges pass NaN on, from either side") {
  for (const auto& [a, b] : {std::pair{not_a_number, 1.0F}, std::pair{1.0F, not_a_number}}) {
    CHECK(std::isnan(merged<MergeFunction::maximum>(a, b)));
    CHECK(std::isnan(merged<MergeFunction::minimum>(a, b)));
    CHECK(std::isnan(merged<MergeFunction::multiply>(a, b)));
  }
  CHECK(merged<MergeFunction::maximum>(1, 2) == 2);
  CHECK(merged<MergeFunction::minimum>(1, 2) == 1);
}
