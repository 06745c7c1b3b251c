// The synthetic digits. Their bytes must not change, since programs, tests and benchmarks compare runs on them.
#include "support/catch.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/data/mnist.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Pixels = std::vector<std::uint8_t>;
using Labels = std::vector<std::int32_t>;

std::uint64_t digest(const Dataset& data) {
  const auto& pixels = std::get<SharedArray<std::uint8_t>>(data.input().values);
  Bytes bytes(pixels.begin(), pixels.end());
  for (const std::int32_t label : std::get<SharedArray<std::int32_t>>(data.target().values))
    bytes.push_back(static_cast<std::uint8_t>(label));
  return digest_of(bytes);
}

}  // namespace

TEST_CASE("the synthetic digits are identical on every machine", "[digits]") {
  const TrainTestSplit digits = synthetic_digits(2000, 500);
  // Other digests mean other training data for all users, and new figures in the documentation.
  CHECK(digest(digits.train) == 0x7C0956820BF49698);
  CHECK(digest(digits.test) == 0x42738C166E34039D);
}

TEST_CASE("a synthetic digit depends only on its index", "[digits]") {
  const TrainTestSplit many = synthetic_digits(300, 200);
  const TrainTestSplit few = synthetic_digits(40, 30);
  CHECK(std::get<SharedArray<std::uint8_t>>(few.train.input().values) ==
        std::get<SharedArray<std::uint8_t>>(many.train.slice(0, 40).input().values));
  CHECK(std::get<SharedArray<std::int32_t>>(few.train.target().values) ==
        std::get<SharedArray<std::int32_t>>(many.train.slice(0, 40).target().values));
  CHECK(std::get<SharedArray<std::uint8_t>>(few.test.input().values) ==
        std::get<SharedArray<std::uint8_t>>(many.test.slice(0, 30).input().values));
  CHECK(std::get<SharedArray<std::uint8_t>>(few.test.input().values) !=
        std::get<SharedArray<std::uint8_t>>(few.train.slice(0, 30).input().values));
  CHECK(synthetic_digits(0, 0).train.size() == 0);
}

TEST_CASE("the synthetic digits resemble MNIST and are fast to generate", "[digits]") {
  const auto start = std::chrono::steady_clock::now();
  const TrainTestSplit digits = synthetic_digits();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "synthetic digits drawn in " << seconds.count() << " s\n";
  CHECK(digits.train.size() == 60000);
  CHECK(digits.test.size() == 10000);
  CHECK(digits.train.input().shape == Shape{28, 28});
  digits.train.validate(10);
  digits.test.validate(10);

  std::array<int, 10> counts{};
  for (const std::int32_t label : std::get<SharedArray<std::int32_t>>(digits.train.target().values))
    ++counts.at(static_cast<std::size_t>(label));
  for (const int count : counts) CHECK((count > 5700 && count < 6300));

  double sum = 0;
  std::size_t blank = 0;
  const auto& pixels = std::get<SharedArray<std::uint8_t>>(digits.train.input().values);
  for (std::size_t image = 0; image < 60000; ++image) {
    std::size_t inked = 0;
    for (const std::uint8_t pixel : std::span(pixels).subspan(image * 784, 784)) {
      sum += pixel;
      inked += pixel > 100 ? 1 : 0;
    }
    blank += inked < 10 ? 1 : 0;  // too little ink to recognize
  }
  CHECK(sum / (60000.0 * 784.0 * 255.0) == Approx(0.1).margin(0.03));
  CHECK(blank < 20);
}
