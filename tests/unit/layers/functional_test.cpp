// Functional models: Keras' order of layers, calls, shapes and errors.
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using lockstep::testing::require_words;

namespace {

std::vector<std::string> names_of(const Architecture& model) {
  std::vector<std::string> names;
  for (const LayerInfo& layer : model.layers()) names.push_back(layer.name);
  return names;
}

std::string refusal(const std::function<void()>& build) {
  try {
    build();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("A Functional model has Keras' order of layers") {
  // Keras 3.15 gives i, aa, bb, zz, bn, shared, add for this program.
  const Tensor input = Input({8}, "i");
  const Tensor z = Dense(8, {.name = "zz"})(input);
  const Tensor b = BatchNormalization({.name = "bn"})(Dense(8, {.name = "bb"})(Dense(8, {.name = "aa"})(input)));
  const Activation shared(relu, "shared");
  const Functional model(input, Add("add")({shared(z), shared(b)}));
  CHECK(names_of(model) == std::vector<std::string>{"i", "aa", "bb", "zz", "bn", "shared", "add"});
  CHECK(model.name() == "functional");
  CHECK_FALSE(model.is_sequential());
  CHECK_FALSE(model.is_chain());
  CHECK(model.calls().size() == 8);  // `shared` is called twice
  for (std::size_t call = 0; call < model.calls().size(); ++call) {
    for (const int read : model.calls()[call].inputs) CHECK(read < static_cast<int>(call));
  }
}

TEST_CASE("Layers are named in Keras' order, and copies of a layer are one layer") {
  const Tensor input = Input({6, 6, 2});
  const Conv2D convolution(2, 3, {.padding = "same"});
  const Conv2D copy = convolution;  // NOLINT(performance-unnecessary-copy-initialization)
  const Tensor x = Add()({convolution(input), copy(input)});
  CHECK(x.shape() == Shape{6, 6, 2});
  const Functional model(input, Dense(3)(GlobalAveragePooling2D()(Conv2D(4, 3)(x))));
  CHECK(names_of(model) ==
        std::vector<std::string>{"input_layer", "conv2d", "add", "conv2d_1", "global_average_pooling2d", "dense"});
  CHECK(model.count_parameters(true) == (3 * 3 * 2 * 2 + 2) + (3 * 3 * 2 * 4 + 4) + (4 * 3 + 3));
  CHECK(model.input_shape() == Shape{6, 6, 2});
  CHECK(model.output_shape() == Shape{3});
}

TEST_CASE("A Functional model of one branch is a chain") {
  const Tensor input = Input({4});
  const Functional chain(input, Dense(2)(Dense(3)(input)), "mine");
  CHECK(chain.is_chain());
  CHECK(chain.name() == "mine");
  CHECK(Sequential{Input({4}), Dense(3), Dense(2)}.is_chain());
  const Tensor x = Dense(4)(input);
  CHECK_FALSE(Functional(input, Add()({x, x})).is_chain());
}

TEST_CASE("A model is called like a layer, and lowering sees the layers inside") {
  const Tensor input = Input({6, 6, 2});
  const Sequential base({Input({6, 6, 2}), Conv2D(2, 3, {.padding = "same"}), BatchNormalization()}, "base");
  const Tensor left = base(input);
  const Functional model(input, Dense(3)(Flatten()(Add()({left, base(left)}))));
  CHECK(names_of(model) == std::vector<std::string>{"input_layer", "base", "add", "flatten", "dense"});
  CHECK(model.layers()[1].class_name == "Sequential");
  CHECK(model.layers()[1].output_shape == Shape{6, 6, 2});
  REQUIRE(model.layers()[1].parameters.size() == 6);
  CHECK(model.layers()[1].parameters[0].name == "conv2d/kernel");
  CHECK(model.layers()[1].parameters[5].name == "batch_normalization/moving_variance");

  const Architecture flat = model.flattened();
  CHECK(names_of(flat) ==
        std::vector<std::string>{"input_layer", "base/conv2d", "base/batch_normalization", "add", "flatten", "dense"});
  CHECK(flat.calls().size() == 8);  // the base's two layers are called twice
  CHECK(flat.count_parameters(true) == model.count_parameters(true));
  CHECK(flat.count_parameters(false) == model.count_parameters(false));
  CHECK(flat.output_shape() == model.output_shape());
}

TEST_CASE("A Sequential model may begin with a model, and flattens to a chain") {
  const Sequential base{Input({4}), Dense(3)};
  const Sequential model{base, Sequential{Input({3}), Dense(5), Dense(2)}, Dense(2)};
  CHECK(names_of(model) == std::vector<std::string>{"input_layer", "sequential", "sequential_1", "dense"});
  CHECK(names_of(model.flattened()) == std::vector<std::string>{"input_layer", "sequential/dense", "sequential_1/dense",
                                                                "sequential_1/dense_1", "dense"});
  CHECK(model.flattened().is_chain());
}

TEST_CASE("Outputs have the names of their layers, and further outputs of a layer a number") {
  const Tensor input = Input({4}, "input");
  const Dense shared(4, {.name = "d"});
  const Tensor once = shared(input);
  const Functional model(std::vector{input},
                         std::vector{once, shared(once), Dense(2, {.name = "d_1"})(once), shared(shared(once)), once});
  std::vector<std::string> names;
  for (std::size_t i = 0; i < model.outputs().size(); ++i) names.push_back(model.output_name(i));
  CHECK(names == std::vector<std::string>{"d", "d_2", "d_1", "d_3", "d_4"});
}

TEST_CASE("A model with several inputs is called on as many tensors of its shapes") {
  const Tensor a = Input({4}, "a");
  const Tensor b = Input({2}, "b");
  const Functional inner(std::vector{a, b}, std::vector<Tensor>{Subtract()({Dense(3)(a), Dense(3)(b)})}, "inner");
  const Tensor x = Input({2}, "x");
  const Functional outer(x, inner({Dense(4)(x), x}));
  CHECK(outer.flattened().calls().size() == 5);
  require_words(refusal([&] { inner(x); }), {"'inner' (Functional)", "2 inputs", "1 tensors"});
  require_words(refusal([&] { inner({x, x}); }), {"'inner' (Functional)", "(2,)", "'a'", "(4,)"});
  const Functional two(std::vector{x}, std::vector{Dense(1)(x), Dense(2)(x)}, "two");
  require_words(refusal([&] { two(x); }), {"'two' (Functional)", "2 outputs"});
}

TEST_CASE("What cannot be a Functional model is refused by name") {
  const Tensor input = Input({4}, "in");
  const Tensor other = Input({4}, "other");
  const Tensor wide = Dense(5)(input);
  const std::vector<std::pair<std::function<void()>, std::vector<std::string>>> cases{
      {[&] {
         (void)Add()({input, wide});
       },
       {"'add' (Add)", "(4,)", "(5,)", "one size, or 1"}},
      {[&] { (void)Add("sum")({input}); }, {"'sum' (Add)", "at least 2 tensors", "called on 1"}},
      {[&] { (void)Add()(std::vector<Tensor>{}); }, {"'add' (Add)", "no tensors"}},
      {[&] {
         (void)Subtract()({input, input, input});
       },
       {"'subtract'", "exactly 2 tensors", "called on 3"}},
      {[&] { (void)Conv2D(1, 3)(input); }, {"'conv2d'", "rank 3", "(4,)"}},
      {[&] { (void)Functional(wide, wide); }, {"input of a Functional", "Dense", "must be an Input"}},
      {[&] {
         (void)Functional(input, Add()({input, other}));
       },
       {"'other'", "not among the model's inputs"}},
      {[&] { (void)Functional(std::vector<Tensor>{}, {wide}); }, {"no inputs"}},
      {[&] { (void)Functional(std::vector{input}, {}); }, {"no outputs"}},
      {[&] {
         const Dense shared(3);
         (void)Functional(input, Add()({shared(input), shared(wide)}));
       },
       {"'dense_1' (Dense)", "(4,)", "(5,)", "equal shapes"}},
  };
  for (const auto& [build, words] : cases) require_words(refusal(build), words);
}

TEST_CASE("nested models that multiply without bound are refused") {
  Architecture model = Sequential{Input({2}), Dense(2)};
  for (int level = 0; level < 6; ++level) {
    const Tensor input = Input({2});
    Tensor x = input;
    for (int call = 0; call < 6; ++call) x = model(x);
    model = Functional(input, x, "level" + std::to_string(level));
  }
  require_words(refusal([&] { static_cast<void>(model.flattened()); }), {"'level5'", "more than 10000 times"});
}
