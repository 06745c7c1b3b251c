// Dataset: sizes, slices, and the errors of validate().
#include "support/catch.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Pixels = std::vector<std::uint8_t>;
using Labels = std::vector<std::int32_t>;
using Floats = std::vector<float>;

Dataset four_examples() { return {Shape{2, 3}, counting(24), Shape{}, Labels{0, 1, 2, 1}, "some data"}; }

void check_refused(const Dataset& data, std::int64_t classes, const std::string& words) {
  CHECK(lacking(message_of<DataError>([&] { data.validate(classes); }), {"some data", words}) == "");
}

}  // namespace

TEST_CASE("a dataset counts its examples and returns slices", "[dataset]") {
  const Dataset data = four_examples();
  CHECK(data.size() == 4);
  data.validate(3);
  const Dataset middle = data.slice(1, 3);
  CHECK(middle.size() == 2);
  CHECK(middle.example_shape == data.example_shape);
  CHECK(std::get<SharedArray<std::uint8_t>>(middle.inputs) == Pixels{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
  CHECK(std::get<SharedArray<std::int32_t>>(middle.targets) == Labels{1, 2});
  CHECK(data.slice(4, 4).size() == 0);
  CHECK_THROWS_AS(data.slice(3, 5), UsageError);
  CHECK_THROWS_AS(data.slice(3, 2), UsageError);
}

TEST_CASE("a dataset keeps its id when it moves, and copies have their own", "[dataset]") {
  Dataset data = four_examples();
  const std::uint64_t id = data.id.value();
  Dataset copy = data;
  CHECK(copy.id.value() != id);
  CHECK(data.id.value() == id);
  const Dataset moved = std::move(data);
  CHECK(moved.id.value() == id);
  const std::uint64_t before = copy.id.value();
  copy = moved;
  CHECK(copy.id.value() != before);
  CHECK(copy.id.value() != id);
  copy = four_examples();
  CHECK(copy.id.value() != four_examples().id.value());
  CHECK(moved.slice(0, 2).id.value() != id);
}

TEST_CASE("targets may be float vectors", "[dataset]") {
  const Dataset data{Shape{1}, Floats{1, 2, 3}, Shape{2}, Floats{1, 2, 3, 4, 5, 6}, "some data"};
  data.validate(1);
  CHECK(std::get<SharedArray<float>>(data.slice(1, 2).targets) == Floats{3, 4});
  CHECK(std::get<SharedArray<float>>(data.slice(1, 2).inputs) == Floats{2});
}

TEST_CASE("labels out of range are named", "[dataset]") {
  Dataset data = four_examples();
  check_refused(data, 2, "target 2 of some data is class 2, but the model has classes 0 to 1");
  data.targets = Labels{0, 1, 2, -1};
  check_refused(data, 3, "target 3 of some data is class -1, but the model has classes 0 to 2; correct the label");
  data.targets = Labels{3, 1, 2, 1};
  check_refused(data, 3, "subtract 1 from the labels, which count from 1");
  data.targets = Labels{3, 0, 2, 1};
  check_refused(data, 3, "correct the label");
}

TEST_CASE("inconsistent datasets are rejected", "[dataset]") {
  Dataset data = four_examples();
  data.targets = Labels{0, 1, 2};
  check_refused(data, 3, "hold 3 values where its 4 examples need 1 each");
  CHECK_THROWS_AS(data.slice(0, 1), DataError);
  data = four_examples();
  data.inputs = counting(23);
  check_refused(data, 3, "not a multiple of the 6 values");
  data = four_examples();
  data.example_shape = Shape{2, 0};
  check_refused(data, 3, "at least 1");
  CHECK(data.size() == 0);
  data.example_shape = Shape{std::int64_t{1} << 62U, 8};  // 2^65 elements
  check_refused(data, 3, "at least 1");
  data = {Shape{2}, Pixels{}, Shape{}, Labels{}, "some data"};
  check_refused(data, 3, "holds no example");
}

TEST_CASE("a number that is not finite is named", "[dataset]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  Dataset data{Shape{2}, std::vector<float>{1, 2, 3, nan, 5, 6}, Shape{}, std::vector<float>{1, 2, 3}, "some.npz", {}};
  CHECK(lacking(message_of<DataError>([&] { data.validate(1); }), {"input 1 of some.npz is NaN", "value 1"}) == "");
  data.inputs = std::vector<float>{1, 2, 3, 4, 5, 6};
  CHECK_NOTHROW(data.validate(1));
  data.targets = std::vector<float>{1, 2, -infinity};
  CHECK(lacking(message_of<DataError>([&] { data.validate(1); }), {"target 2 of some.npz is infinite"}) == "");
}

TEST_CASE("a slice shares the memory of its dataset and keeps it alive", "[dataset]") {
  std::optional<Dataset> data(four_examples());
  const auto* const inputs = std::get<SharedArray<std::uint8_t>>(data->inputs).data();
  const Dataset rest = data->slice(1, 4);
  CHECK(std::get<SharedArray<std::uint8_t>>(rest.inputs).data() == inputs + 6);
  data.reset();
  CHECK(std::get<SharedArray<std::int32_t>>(rest.targets) == Labels{1, 2, 1});
}
