// Models of several inputs against the reference: where their inputs meet, and in which order they are listed.
#include "support/catch.hpp"
#include "unit/backend/checked_model.hpp"

#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <exception>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

void check(const Architecture& model, const CheckedModelOptions& options = {}) {
  INFO(describe(model));
  try {
    CheckedModel checked_model(model, options);
    checked_model.train({3, 2});
    checked_model.train({0, 4, 1});
    checked_model.infer(5);
  } catch (const std::exception& error) {
    if (!is_refusal_of_gpus(error)) throw;
  }
}

}  // namespace

TEST_CASE("branches of several inputs match the reference wherever they meet") {
  const Tensor image = Input({7, 6, 2}, "image");
  const Tensor numbers = Input({5}, "numbers");
  const Tensor sequence = Input({9, 3}, "sequence");
  const Tensor seen = GlobalAveragePooling2D()(Conv2D(16, 3, {.activation = "tanh"})(image));
  const Tensor heard = Flatten()(Conv1D(4, 3, {.activation = "tanh"})(sequence));
  const Tensor known = Dense(16, {.activation = "tanh"})(numbers);
  const Tensor all = Concatenate()({Add()({seen, known}), heard, numbers});
  const Tensor classes = Dense(3)(Dropout(0.25)(all));
  for (const int threads : {1, 2}) {
    for (const Pixels pixels : {Pixels::floats, Pixels::bytes}) {
      // The inputs are listed in another order than the one in which they are used.
      check(Functional(std::vector{sequence, numbers, image}, std::vector{classes}),
            {.threads = threads, .pixels = pixels});
    }
  }
}

TEST_CASE("a layer that several inputs share adds up its gradients") {
  const Tensor left = Input({6, 6, 1}, "left");
  const Tensor right = Input({6, 6, 1}, "right");
  const Conv2D convolution(16, 3, {.activation = "tanh"});
  const Tensor difference = Subtract()({convolution(left), convolution(right)});
  const Tensor normalized = BatchNormalization()(difference);
  check(Functional(std::vector{left, right}, std::vector{Dense(3)(Flatten()(normalized))}), {.threads = 2});

  const Tensor input = Input({6, 6, 1});
  const Functional encoder(input, Dense(4)(Flatten()(Conv2D(3, 2)(input))), "encoder");
  const Tensor product = Multiply()({encoder(right), encoder(left)});
  check(Functional(std::vector{right, left}, std::vector{Dense(3)(product)}));
}

TEST_CASE("inputs may be merged before any layer, scaled, and read several times") {
  const Tensor a = Input({4, 4, 3}, "a");
  const Tensor b = Input({4, 4, 3}, "b");
  const Tensor scaled = Rescaling(0.5, -1)(b);
  const Tensor reshaped = Reshape({16, 3})(a);
  const Tensor sum = Maximum()({a, scaled, Rescaling(2)(a)});
  const Tensor merged = Concatenate()({Flatten()(sum), Flatten()(reshaped), Flatten()(Conv2D(16, 2)(b))});
  for (const Pixels pixels : {Pixels::floats, Pixels::bytes}) {
    check(Functional(std::vector{b, a}, std::vector{Dense(3)(merged)}), {.pixels = pixels});
  }
}

TEST_CASE("a model does not need to use all of its inputs") {
  const Tensor used = Input({4}, "used");
  const Tensor unused = Input({2}, "unused");
  check(Functional(std::vector{unused, used}, std::vector{Dense(3)(used)}));
}
