// The gradient of the categorical hinge where outputs are equal.
#include "support/catch.hpp"
#include "support/loss_gradient.hpp"

#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("the largest wrong outputs share the gradient of the categorical hinge") {
  const auto gradient = [](const std::vector<float>& outputs, const std::vector<float>& targets) {
    return loss_gradient(CategoricalHinge(), outputs, targets).gradient;
  };
  CHECK(gradient({0, 2, 2, 1}, {1, 0, 0, 0}) == std::vector<float>{-1, 0.5F, 0.5F, 0});
  // The class of the target counts as 0.
  CHECK(gradient({0, 0, 0, 0}, {0, 1, 0, 0}) == std::vector<float>{0.25F, -1, 0.25F, 0.25F});
  CHECK(gradient({0, 0, 0, -1}, {0, 1, 0, 0}) == std::vector<float>{1 / 3.0F, -1, 1 / 3.0F, 0});
  CHECK(gradient({0, 0, -1, -1}, {0, 1, 0, 0}) == std::vector<float>{0.5F, -1, 0, 0});
  CHECK(gradient({3, 1, 1}, {1, 0, 0}) == std::vector<float>{0, 0, 0});
}
