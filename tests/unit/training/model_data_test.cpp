// Which data a model takes: shapes, targets, types, and datasets that reuse each other's memory.
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/reference_training.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const Sequential small{Input({6}), Dense(5, {.activation = "tanh"}), Dense(3)};

}  // namespace

TEST_CASE("mismatched data is rejected before computation") {
  Job job(small, plain);
  const std::vector<NamedTensor> before = job.model.weights();
  const Examples wide = make_examples(Sequential{Input({7}), Dense(3)}, logits, 8, 5);
  CHECK(contains(message_of<DataError>([&] { job.model.fit(wide.data); }), "(7,)"));
  CHECK_THROWS_AS(job.model.evaluate(wide.data), DataError);
  CHECK_THROWS_AS(job.model.predict(wide.data), DataError);
  const Examples dense = make_examples(small, MeanSquaredError(), 8, 5);
  CHECK(contains(message_of<UsageError>([&] { job.model.fit(dense.data); }), "dense targets"));
  const Examples many = make_examples(Sequential{Input({6}), Dense(30)}, logits, 40, 5);
  CHECK_THROWS_AS(job.model.fit(many.data), DataError);  // classes out of the model's range
  Dataset empty = make_examples(small, logits, 8, 5).data.slice(0, 0);
  CHECK_THROWS_AS(job.model.fit(empty), DataError);
  CHECK(same_bits(job.model.weights(), before));

  Model uncompiled = job.strategy.build(small);
  const Examples examples = make_examples(small, logits, 8, 5);
  CHECK(contains(message_of<UsageError>([&] { uncompiled.fit(examples.data); }), "compile"));
  CHECK_THROWS_AS(uncompiled.compile({.optimizer = SGD({.learning_rate = -1})}), UsageError);
  CHECK_THROWS_AS(uncompiled.predict(examples.data), UsageError);
}

TEST_CASE("shapes must be equal but for a last axis of 1") {
  const auto refusal = [](const Shape& model_shape, const Shape& data_shape, int examples = 8) {
    Job job(Sequential{Input(model_shape), Flatten(), Dense(3)}, plain);
    Dataset data = make_examples(Sequential{Input(model_shape), Flatten(), Dense(3)}, logits, examples, 5).data;
    data.input().shape = data_shape;
    return message_of<DataError>([&] { job.model.fit(data); });
  };
  const std::string none = "no such error was thrown";
  CHECK(refusal({4, 4}, {4, 4, 1}) == none);
  CHECK(refusal({4, 4, 1}, {4, 4}) == none);
  CHECK(contains(refusal({4, 4, 3}, {3, 4, 4}), "numpy.transpose(x, (0, 2, 3, 1))"));
  CHECK(contains(refusal({6, 4, 3}, {4, 6, 3}), "numpy.transpose(x, (0, 2, 1, 3))"));
  CHECK(contains(refusal({8, 4, 3}, {4, 3}, 1), "for a single example, give x[None]"));
  CHECK(contains(refusal({4, 4, 3}, {4, 12}), "takes examples of shape (4, 4, 3)"));
  CHECK(contains(refusal({6}, {2, 3}), "(2, 3); reshape or resize"));
  CHECK(contains(refusal({4, 2}, {2, 4}), "(2, 4)"));

  Job regression(Sequential{Input({6}), Dense(4), Reshape({2, 2})},
                 {.optimizer = SGD(), .loss = MeanSquaredError(), .metrics = {}});
  Dataset data = make_examples(Sequential{Input({6}), Dense(4)}, MeanSquaredError(), 8, 5).data;
  CHECK(contains(message_of<DataError>([&] { regression.model.fit(data); }), "has targets of shape (4,)"));
}

TEST_CASE("inputs of integers take whole numbers, and bytes as they are") {
  const auto model_of = [](InputType type) { return Sequential{Input({4}, "in", type), Dense(3)}; };
  const auto predict = [&](InputType type, InputValues inputs) {
    Job job(model_of(type), plain);
    Dataset data;
    data.inputs.push_back({Shape{4}, std::move(inputs)});
    return job.model.predict(data);
  };
  const auto refusal = [&](InputType type, const std::vector<float>& inputs) {
    return message_of<DataError>([&] { (void)predict(type, inputs); });
  };
  const std::vector<float> whole{0, 1, 200, 255};
  const std::vector<float> expected = predict(InputType::float32, whole);
  CHECK(predict(InputType::int32, whole) == expected);
  CHECK(predict(InputType::uint8, std::vector<std::uint8_t>{0, 1, 200, 255}) == expected);
  CHECK(predict(InputType::float32, std::vector<std::uint8_t>{0, 1, 200, 255}) != expected);  // times 1/255
  CHECK(contains(refusal(InputType::int32, {0, 1, 2.5F, 3}), "value 2 of"));
  CHECK(contains(refusal(InputType::int32, {0, 1, 2.5F, 3}), "is 2.5, but the model's input is int32"));
  CHECK(contains(refusal(InputType::uint8, {0, 1, 256, 3}), "is 256"));
  CHECK(contains(refusal(InputType::boolean, {0, 1, 1, -1}), "is -1"));
  CHECK(contains(refusal(InputType::int32, {0, 3e9F, 1, 1}), "value 1 of"));

  Job computing(Sequential{Input({2, 2, 1}), Flatten(), Dense(3)}, plain);
  const auto refused = [&](const Layer& first) {
    const Sequential model{Input({2, 2, 1}, "in", InputType::uint8), first, Flatten(), Dense(3)};
    Model made = computing.strategy.build(model);
    return message_of<UsageError>([&] { made.compile(plain); });
  };
  CHECK(contains(refused(Conv2D(2, 1)), "reads an Input of uint8"));
  CHECK(contains(refused(MaxPooling2D()), "Rescaling(1) before"));
  CHECK(contains(refused(Rescaling(1)), "no such error"));
  CHECK(contains(refused(Reshape({4, 1, 1})), "no such error"));

  const Tensor image = Input({4}, "in", InputType::uint8);
  const Architecture nested = model_of(InputType::uint8);
  Job job(small, plain);
  CHECK_NOTHROW(job.strategy.build(Functional(image, nested(image))).compile(plain));
  Model of_floats = job.strategy.build(Functional(image, nested(Dense(4)(image))));
  CHECK(contains(message_of<UsageError>([&] { of_floats.compile(plain); }),
                 "takes uint8 and is called on other numbers"));
}

TEST_CASE("a new dataset at the address of a freed one is recognized as new") {
  Job job(small, plain);
  std::optional<Examples> place;
  for (const std::size_t count : {40, 3, 17, 1}) {
    place.emplace(make_examples(small, logits, count, count));
    ReferenceTraining expected(small, plain, *place, 7, 1);
    const std::vector<NamedTensor> weights = job.model.weights();
    for (std::size_t p = 0; p < weights.size(); ++p) {
      expected.model.weights()[p].assign(weights[p].values.begin(), weights[p].values.end());
    }
    CHECK(job.model.evaluate(place->data).at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-5));
    CHECK(job.model.fit(place->data)["loss"][0] == Approx(expected.fit(1, 8)[0].loss()).epsilon(1e-5));
  }
  place.emplace(make_examples(Sequential{Input({9}), Dense(3)}, logits, 8, 5));
  CHECK_THROWS_AS(job.model.evaluate(place->data), DataError);
  place.emplace(make_examples(small, MeanSquaredError(), 8, 5));
  CHECK_THROWS_AS(job.model.evaluate(place->data), UsageError);
  job.model.compile({.optimizer = SGD(), .loss = MeanSquaredError()});
  CHECK_NOTHROW(job.model.evaluate(place->data));
  job.model.compile(plain);
  CHECK_THROWS_AS(job.model.evaluate(place->data), UsageError);
}

TEST_CASE("labels of a dataset of equal size at the address of a freed one are checked") {
  Job job(small, plain);
  std::optional<Examples> place(make_examples(small, logits, 8, 5));
  job.model.fit(place->data);
  place.emplace(make_examples(small, logits, 8, 5));
  const auto& targets = std::get<SharedArray<std::int32_t>>(place->data.target().values);
  std::vector<std::int32_t> wrong(targets.begin(), targets.end());
  wrong[3] = 99;
  place->data.target().values = wrong;
  CHECK_THROWS_AS(job.model.fit(place->data), DataError);
  CHECK_THROWS_AS(job.model.evaluate(place->data), DataError);
}
