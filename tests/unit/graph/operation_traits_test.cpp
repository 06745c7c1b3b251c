// Invariants of the traits of all kinds of operations.
#include "graph/operation_kind.hpp"

#include "support/catch.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

using namespace lockstep;

TEST_CASE("every operation kind has traits and a unique name") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < num_operation_kinds; ++i) {
    const auto kind = static_cast<OperationKind>(i);
    INFO(to_string(kind));
    CHECK(traits_of(kind).kind == kind);
    CHECK(names.insert(to_string(kind)).second);
  }
}

TEST_CASE("the gradient of an operation is a backward operation named after it") {
  for (std::size_t i = 0; i < num_operation_kinds; ++i) {
    const OperationTraits& traits = traits_of(static_cast<OperationKind>(i));
    if (!traits.backward) continue;
    const OperationTraits& backward = traits_of(*traits.backward);
    INFO(to_string(traits.kind));
    CHECK(to_string(backward.kind) == std::string(to_string(traits.kind)) + "_backward");
    CHECK(is_backward(backward.kind));
    CHECK_FALSE(is_backward(traits.kind));
    CHECK(backward.has_kernel == traits.has_kernel);
    CHECK(backward.reach == traits.reach);
  }
}

TEST_CASE("an operation that needs the whole batch never runs in microbatches") {
  for (std::size_t i = 0; i < num_operation_kinds; ++i) {
    const OperationTraits& traits = traits_of(static_cast<OperationKind>(i));
    INFO(to_string(traits.kind));
    if (traits.reach == Reach::batch) CHECK_FALSE(traits.is_microbatchable);
    if (traits.reach == Reach::element && !is_backward(traits.kind)) CHECK(traits.is_per_channel);
  }
}
