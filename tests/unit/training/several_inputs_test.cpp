// Model on datasets of several inputs: against the reference, by name and by order, and its messages.
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/reference_training.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

Functional two_inputs() {
  const Tensor image = Input({6, 6, 1}, "image");
  const Tensor numbers = Input({3}, "numbers");
  const Tensor seen = Flatten()(Conv2D(4, 3, {.activation = "tanh"})(image));
  const Tensor all = Concatenate()({seen, Dense(5, {.activation = "tanh"})(numbers)});
  return {std::vector{image, numbers}, std::vector{Dense(3)(Dropout(0.25)(all))}};
}

std::vector<NamedTensor> trained_on(const Dataset& data) {
  Job job(two_inputs(), plain);
  job.model.fit(data, {.epochs = 2});
  return job.model.weights();
}

}  // namespace

TEST_CASE("a model of two inputs trains, evaluates and predicts as the reference") {
  const Functional model = two_inputs();
  const Examples examples = make_examples(model, logits, 29, 3);
  for (const int replicas : {1, 3}) {
    Job job(model, plain, silent_options(8, replicas));
    ReferenceTraining expected(model, plain, examples, 7, static_cast<std::size_t>(replicas));
    const History history = job.model.fit(examples.data, {.epochs = 2});
    const auto epochs = expected.fit(2, 8);
    for (std::size_t e = 0; e < 2; ++e) CHECK(history["loss"][e] == Approx(epochs[e].loss()).epsilon(1e-4));
    const auto [error, name] = expected.compare(job.model.weights());
    INFO("worst: " << name);
    CHECK(error < 1e-4);
    for (const int batch_size : {0, 5}) {
      const Logs logs = job.model.evaluate(examples.data, {.batch_size = batch_size});
      CHECK(logs.at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-4));
      CHECK(relative_error(job.model.predict(examples.data, {.batch_size = batch_size}), expected.predict()) < 1e-4);
    }
  }
}

TEST_CASE("arrays are matched by name, or by order if they have none") {
  const Dataset data = make_examples(two_inputs(), logits, 20, 4).data;
  const std::vector<NamedTensor> expected = trained_on(data);
  Dataset swapped = data;
  std::swap(swapped.inputs[0], swapped.inputs[1]);
  CHECK(same_bits(trained_on(swapped), expected));
  Dataset unnamed = data;
  for (InputArray& array : unnamed.inputs) array.name = "";
  CHECK(same_bits(trained_on(unnamed), expected));
  CHECK_FALSE(same_bits(trained_on(data.slice(0, 15)), expected));

  Job job(two_inputs(), plain);
  job.model.fit(data, {.validation_split = 0.25});
  CHECK(job.model.predict(swapped) == job.model.predict(data));
  CHECK(job.model.predict(unnamed.slice(3, 7)).size() == 12);
}

TEST_CASE("bytes of one input and floats of another are scaled by what reads them") {
  const Tensor image = Input({4}, "image");
  const Tensor level = Input({2}, "level");
  const Functional model(std::vector{image, level},
                         std::vector{Dense(3)(Concatenate()({image, Rescaling(0.5)(level)}))});
  Job job(model, plain);
  const std::vector<std::uint8_t> pixels{0, 51, 102, 255};
  const std::vector<std::uint8_t> levels{3, 200};
  Dataset bytes;
  bytes.inputs = {{Shape{2}, levels, "level"}, {Shape{4}, pixels, "image"}};
  Dataset floats;
  floats.inputs = {{Shape{2}, std::vector<float>{3, 200}, "level"},
                   {Shape{4}, std::vector<float>{0, 0.2F, 0.4F, 1}, "image"}};
  const std::vector<float> expected = job.model.predict(floats);
  const std::vector<float> found = job.model.predict(bytes);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-5).margin(1e-5));
}

TEST_CASE("missing, surplus and wrong arrays of inputs are named") {
  Job job(two_inputs(), plain);
  const Dataset good = make_examples(two_inputs(), logits, 8, 4).data;
  const auto refusal = [&](auto change) {
    Dataset data = good;
    data.source = "some data";
    change(data);
    return message_of<Error>([&] { job.model.fit(data); });
  };
  CHECK(refusal([](Dataset& data) { data.inputs.pop_back(); }) ==
        "some data has no array for the model's input 'numbers', only 'image'; add it");
  CHECK(refusal([](Dataset& data) {
          data.inputs.push_back({Shape{1}, std::vector<float>(8), "price"});
        }) ==
        "some data has an array 'price', but the model's inputs are 'image' and 'numbers'; leave it out, or rename it");
  CHECK(refusal([](Dataset& data) { data.inputs[1].name = "image"; }) ==
        "some data has two arrays 'image'; leave one out");
  CHECK(refusal([](Dataset& data) { data.inputs[1].name = ""; }) ==
        "some data has arrays with and without a name; name all or none");
  CHECK(refusal([](Dataset& data) {
          for (InputArray& array : data.inputs) array.name = "";
          data.inputs.pop_back();
        }) == "the model has 2 inputs, 'image' and 'numbers', but some data has 1 array; give one for each input");
  CHECK(contains(refusal([](Dataset& data) {
                   data.inputs[1].shape = Shape{3, 2};
                 }),
                 "the model's input 'numbers' takes examples of shape (3,), but 'numbers' of some data has (3, 2)"));
  CHECK(contains(refusal([](Dataset& data) { data.inputs[1].values = std::vector<float>(21); }),
                 "'image' of some data has 8 examples, but 'numbers' of some data has 7"));
  CHECK(contains(refusal([](Dataset& data) { data.targets.clear(); }),
                 "the model has 1 output, 'dense_1', but some data has 0 arrays"));
  const auto nothing = [](Dataset&) {};
  CHECK(refusal(nothing) == message_of<Error>([] {}));
}
