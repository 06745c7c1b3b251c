// The search finds the cheapest sharding and says why a model cannot be tensor parallel.
#include "parallel/sharding.hpp"

#include "parallel/cost_model.hpp"
#include "sharding_models.hpp"

#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/layers/sequential.hpp>

#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing::sharding;
using lockstep::testing::contains;

namespace {

std::string why_not(const Sequential& model) {
  const Graph graph = graph_of(model);
  CHECK_FALSE(search_sharding(graph, 2, 128, {}));
  return why_not_tensor_parallel(graph);
}

}  // namespace

TEST_CASE("the cheapest sharding depends on the cost of the link") {
  CHECK(splits_of(keras_mnist, free_link) == "eee-=");
  CHECK(splits_of(keras_mnist, fast_link) == "=|-==");
  CHECK(splits_of(keras_mnist, slow_link) == "=~|-=");
  CHECK(splits_of(custom_training_mnist, free_link) == "eeeeee-=");
  CHECK(splits_of(custom_training_mnist, ordinary_link) == "=~~||-==");
  const Sequential chain{Input({64}),
                         Dense(512, {.activation = relu}),
                         Dense(512, {.activation = relu}),
                         Dense(512, {.activation = relu}),
                         Dense(512, {.activation = relu}),
                         Dense(10)};
  CHECK(splits_of(chain, fast_link) == "=|-|-==");
}

TEST_CASE("expensive leading layers are data parallel and the large layer after them is tensor parallel") {
  CHECK(splits_of(deep_convolutions, ordinary_link) == "eeeeeeee-==");
  CHECK(splits_of(deep_convolutions, ordinary_link, 8) == "eeeeeeee-==");
  CHECK(estimate_data_parallel(graph_of(deep_convolutions), 2, 128, ordinary_link) >
        1.3 * search_sharding(graph_of(deep_convolutions), 2, 128, ordinary_link)->estimated_seconds);
  // Every rank has the input: there is no all-to-all.
  CHECK(splits_of(Sequential{Input({64}), Dense(8), Dense(10)}, free_link) != "e-==");
}

TEST_CASE("a convolution with many weights and few outputs is row-parallel") {
  for (const int ranks : {2, 3, 4, 8}) {
    CHECK(splits_of(wide_end, ordinary_link, ranks) == "=~||-===");
    const auto sharding = search_sharding(graph_of(wide_end), ranks, 128, ordinary_link);
    CHECK(sharding->estimated_seconds < 0.8 * estimate_data_parallel(graph_of(wide_end), ranks, 128, ordinary_link));
    // Earlier convolutions have so many outputs that all-reducing partial sums costs more than it saves.
    CHECK(splits_of(deep_convolutions, ordinary_link, ranks).find('-') == deep_convolutions.layers().size() - 3);
  }
  // After the all-reduce all ranks have all channels, so any layer may follow.
  CHECK(sharding_from_code(
      graph_of(Sequential{Input({5, 5, 1}), Conv2D(8, 3), Conv2D(4, 2), GlobalAveragePooling2D(), Activation(softmax)}),
      2, "acraaa"));
  CHECK_FALSE(sharding_from_code(graph_of(Sequential{Input({5, 5, 1}), Conv2D(8, 3), Reshape({9, 8}),
                                                     Reshape({3, 6, 4}), Conv2D(4, 2), Flatten(), Dense(2)}),
                                 2, "acraa"));
}

TEST_CASE("grouped, depthwise and transposed convolutions are never sharded") {
  const auto can_be = [](const Layer& layer, const std::string& code) {
    const std::vector<Layer> layers{Input({6, 6, 1}), Conv2D(8, 3), layer, Flatten(), Dense(3)};
    return sharding_from_code(graph_of(Sequential(layers)), 2, code).has_value();
  };
  CHECK(can_be(Conv2D(4, 2), "apcra"));
  const std::vector<Layer> layers{DepthwiseConv2D(2), Conv2D(8, 2, {.groups = 4}), Conv2DTranspose(4, 2)};
  for (const Layer& layer : layers) {
    CHECK_FALSE(can_be(layer, "apcra"));
    CHECK_FALSE(can_be(layer, "accra"));
    CHECK_FALSE(can_be(layer, "acraa"));
  }
  // Of a separable convolution, only the second half.
  CHECK(can_be(SeparableConv2D(4, 2), "appcra"));
  CHECK_FALSE(can_be(SeparableConv2D(4, 2), "apccra"));
}

TEST_CASE("layers with constraints are never sharded") {
  const auto can_be = [](const Layer& layer, const std::string& code) {
    const std::vector<Layer> layers{Input({6, 6, 1}), Conv2D(8, 3), layer, Conv2D(8, 1), Flatten(), Dense(3)};
    return sharding_from_code(graph_of(Sequential(layers)), 2, code).has_value();
  };
  CHECK(can_be(Conv2D(4, 2), "acraaa"));
  CHECK_FALSE(can_be(Conv2D(4, 2, {.kernel_constraint = MaxNorm()}), "acraaa"));
  CHECK_FALSE(can_be(Conv2D(4, 2, {.bias_constraint = NonNeg()}), "apcraa"));
  CHECK(can_be(BatchNormalization(), "accraa"));
  CHECK_FALSE(can_be(BatchNormalization({.gamma_constraint = NonNeg()}), "accraa"));
  CHECK(can_be(Conv2D(4, 2, {.kernel_constraint = MaxNorm()}), "aaacra") == can_be(Conv2D(4, 2), "aaacra"));
}

TEST_CASE("an unshardable model names the layer and the reason") {
  CHECK(contains(why_not(Sequential{Input({5}), Dense(10)}), "the channels of layer 'dense' are the model's outputs"));
  CHECK(contains(why_not(Sequential{Input({5}), Activation(softmax)}), "no layer with weights"));
  CHECK(contains(why_not(Sequential{Input({5, 5, 1}), Conv2D(8, 3), GlobalAveragePooling2D(), Activation(softmax)}),
                 "layer 'activation' needs all of the channels of layer 'conv2d'"));
  CHECK(contains(why_not(Sequential{Input({5, 5, 1}), Conv2D(8, 3), Flatten(), BatchNormalization()}),
                 "layer 'batch_normalization' changes the shape of the channels of layer 'conv2d'"));
}

TEST_CASE("a sharding is identified by its code") {
  const Graph whole = graph_of(keras_mnist);
  for (const HardwareModel& hardware : {free_link, fast_link, ordinary_link, slow_link}) {
    const auto sharding = search_sharding(whole, 2, 128, hardware);
    REQUIRE(sharding);
    const auto again = sharding_from_code(whole, 2, sharding->code());
    REQUIRE(again);
    CHECK(*again == *sharding);
    CHECK(again->variables.size() == sharding->variables.size());
  }
  for (const char* code : {"", "-", "acraa?", "accaa", "acra", "arraa"})
    CHECK_FALSE(sharding_from_code(whole, 2, code));
}
