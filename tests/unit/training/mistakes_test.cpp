// What find_mistakes finds in pictures, and in data that is none.
#include "session/find_mistakes.hpp"
#include "support/catch.hpp"
#include "training/model_parts.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::size_t pixels = 16;
constexpr std::size_t examples = 200;
const Loss of_classes = SparseCategoricalCrossentropy({.from_logits = true});

/// Class 1 is a bright picture, class 0 a dark one, but for every tenth.
Dataset light_and_dark(const Shape& shape) {
  std::vector<std::uint8_t> values;
  std::vector<std::int32_t> classes;
  for (std::size_t i = 0; i < examples; ++i) {
    values.insert(values.end(), pixels, i % 2 == 0 ? 0 : 250);
    classes.push_back(static_cast<std::int32_t>(i % 10 == 9 ? 1 - i % 2 : i % 2));
  }
  return {shape, values, {}, classes};
}

/// Compares the mean of the pixels with a half.
Mistakes mistakes_of(const Dataset& data, std::size_t batch_size = 8, const Loss& loss = of_classes) {
  Job job(Sequential{Input(data.input().shape), Flatten(), Dense(2)}, {.loss = loss});
  std::vector<NamedTensor> weights = job.model.weights();
  for (std::size_t k = 0; k < pixels; ++k) {
    weights[0].values[2 * k] = 0;
    weights[0].values[2 * k + 1] = 1;
  }
  weights[1].values = {pixels / 2, 0};
  job.model.set_weights(weights);
  return find_mistakes(parts_of(job.model).model.compiled(), data, batch_size);
}

}  // namespace

TEST_CASE("the first mistakes of a classifier of pictures are found in a tenth of the data, or a batch") {
  const Dataset data = light_and_dark({4, 4, 1});
  const Mistakes found = mistakes_of(data);
  CHECK(found.examined == examples / 10);
  REQUIRE(found.shown.size() == 2);  // 9 and 19
  CHECK(found.shown[0].expected == 0);
  CHECK(found.shown[0].predicted == 1);
  CHECK(found.shown[0].picture.height == 4);
  CHECK(found.shown[0].picture.values == std::vector<std::uint8_t>(pixels, 250));
  CHECK(mistakes_of(data, 64).examined == 64);
}

TEST_CASE("the mistakes of pictures of floats reach from black to white") {
  std::vector<float> values(pixels, 2);
  values.front() = -1;
  const Dataset data({4, 4, 1}, values, {2}, std::vector<float>{1, 0});
  const Mistakes found = mistakes_of(data, 8, CategoricalCrossentropy({.from_logits = true}));
  REQUIRE(found.shown.size() == 1);
  CHECK(found.shown[0].expected == 0);
  std::vector<std::uint8_t> expected(pixels, 255);
  expected.front() = 0;
  CHECK(found.shown[0].picture.values == expected);
}

TEST_CASE("at most 24 mistakes are found, and none in what is no picture or no class") {
  Dataset data = light_and_dark({4, 4});
  data.target().values = std::vector<std::int32_t>(examples, 0);
  const Mistakes found = mistakes_of(data, examples);
  CHECK(found.shown.size() == 24);
  CHECK(found.examined == 48);
  CHECK(mistakes_of(light_and_dark({pixels})).examined == 0);
  const Dataset numbers({4, 4}, std::vector<std::uint8_t>(pixels), {2}, std::vector<float>{1, 0});
  CHECK(mistakes_of(numbers, 8, MeanSquaredError()).examined == 0);
}
