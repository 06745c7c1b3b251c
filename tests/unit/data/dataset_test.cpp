// Dataset: sizes, slices, and the errors of validate().
#include "support/catch.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>

#include <algorithm>
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
  CHECK(middle.input().shape == data.input().shape);
  CHECK(std::get<SharedArray<std::uint8_t>>(middle.input().values) ==
        Pixels{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
  CHECK(std::get<SharedArray<std::int32_t>>(middle.target().values) == Labels{1, 2});
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
  CHECK(std::get<SharedArray<float>>(data.slice(1, 2).target().values) == Floats{3, 4});
  CHECK(std::get<SharedArray<float>>(data.slice(1, 2).input().values) == Floats{2});
}

TEST_CASE("labels out of range are named", "[dataset]") {
  Dataset data = four_examples();
  check_refused(data, 2, "target 2 of some data is class 2, but the model has classes 0 to 1");
  data.target().values = Labels{0, 1, 2, -1};
  check_refused(data, 3, "target 3 of some data is class -1, but the model has classes 0 to 2; correct the label");
  data.target().values = Labels{3, 1, 2, 1};
  check_refused(data, 3, "subtract 1 from the labels, which count from 1");
  data.target().values = Labels{3, 0, 2, 1};
  check_refused(data, 3, "correct the label");
}

TEST_CASE("inconsistent datasets are rejected", "[dataset]") {
  Dataset data = four_examples();
  data.target().values = Labels{0, 1, 2};
  check_refused(data, 3, "hold 3 values where its 4 examples need 1 each");
  CHECK_THROWS_AS(data.slice(0, 1), DataError);
  data = four_examples();
  data.input().values = counting(23);
  check_refused(data, 3, "not a multiple of the 6 values");
  data = four_examples();
  data.input().shape = Shape{2, 0};
  check_refused(data, 3, "at least 1");
  CHECK(data.size() == 0);
  data.input().shape = Shape{std::int64_t{1} << 62U, 8};  // 2^65 elements
  check_refused(data, 3, "at least 1");
  data = {Shape{2}, Pixels{}, Shape{}, Labels{}, "some data"};
  check_refused(data, 3, "holds no example");
}

TEST_CASE("a number that is not finite is named", "[dataset]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  Dataset data{Shape{2}, std::vector<float>{1, 2, 3, nan, 5, 6}, Shape{}, std::vector<float>{1, 2, 3}, "some.npz"};
  CHECK(lacking(message_of<DataError>([&] { data.validate(1); }),
                {"the input of example 1 of some.npz is NaN at (1,);"}) == "");
  const Dataset pictures{Shape{2, 1, 3}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, nan, 12}, Shape{},
                         std::vector<float>{1, 2}, "some.npz"};
  CHECK(lacking(message_of<DataError>([&] { pictures.validate(1); }),
                {"the input of example 1 of some.npz is NaN at (1, 0, 1);"}) == "");
  data.input().values = std::vector<float>{1, 2, 3, 4, 5, 6};
  CHECK_NOTHROW(data.validate(1));
  data.target().values = std::vector<float>{1, 2, -infinity};
  CHECK(lacking(message_of<DataError>([&] { data.validate(1); }),
                {"the target of example 2 of some.npz is infinite in float32;"}) == "");
}

TEST_CASE("a slice shares the memory of its dataset and keeps it alive", "[dataset]") {
  std::optional<Dataset> data(four_examples());
  const auto* const inputs = std::get<SharedArray<std::uint8_t>>(data->input().values).data();
  const Dataset rest = data->slice(1, 4);
  CHECK(std::get<SharedArray<std::uint8_t>>(rest.input().values).data() == inputs + 6);
  data.reset();
  CHECK(std::get<SharedArray<std::int32_t>>(rest.target().values) == Labels{1, 2, 1});
}

TEST_CASE("all arrays of a dataset have an element for every example", "[dataset]") {
  Dataset data;
  data.source = "some data";
  CHECK(data.size() == 0);
  data.inputs = {{Shape{2}, Floats{1, 2, 3, 4, 5, 6}, "image"}, {Shape{1}, counting(3), "price"}};
  data.targets = {{Shape{}, Labels{0, 1, 1}, "kind"}, {Shape{2}, Floats{1, 2, 3, 4, 5, 6}, "place"}};
  CHECK(data.size() == 3);
  CHECK_NOTHROW(data.validate(2));
  const Dataset last = data.slice(2, 3);
  CHECK(std::get<SharedArray<float>>(last.inputs[0].values) == Floats{5, 6});
  CHECK(std::ranges::equal(std::get<SharedArray<std::uint8_t>>(last.inputs[1].values), Pixels{2}));
  CHECK(std::get<SharedArray<std::int32_t>>(last.targets[0].values) == Labels{1});
  CHECK(std::get<SharedArray<float>>(last.targets[1].values) == Floats{5, 6});
  CHECK(last.inputs[1].name == "price");

  data.inputs[1].values = counting(4);
  check_refused(data, 2, "'image' of some data has 3 examples, but 'price' of some data has 4");
  CHECK(lacking(message_of<DataError>([&] { (void)data.slice(0, 1); }), {"different numbers of examples"}) == "");
  data.inputs[1].values = counting(3);
  data.targets[1].values = Floats{1, 2, 3, 4};
  check_refused(data, 2, "the targets of 'place' of some data hold 4 values where its 3 examples need 2 each");
  data.targets[1].values = Floats{1, 2, 3, 4, 5, 6};
  check_refused(data, 1, "target 1 of 'kind' of some data is class 1");
}
