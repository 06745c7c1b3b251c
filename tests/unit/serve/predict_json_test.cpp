// Requests and replies of predictions as JSON.
#include "serve/predict_json.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/core/error.hpp>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const ModelSignature pictures{.inputs = {{"image", {2, 2, 1}}}, .outputs = {{"classes", {3}}}};
const ModelSignature several{.inputs = {{"a", {2}}, {"index", {1}, {.type = InputType::int32}}},
                             .outputs = {{"x", {}}, {"y", {2, 1}}}};

std::string refusal(std::string_view body, const ModelSignature& signature = pictures) {
  return message_of<DataError>([&] { (void)parse_predict_request(body, signature); });
}

}  // namespace

TEST_CASE("examples come one after another, or in an array for each input") {
  const PredictRequest rows =
      parse_predict_request(R"({"signature_name": "serving_default", "instances": [[[[1], [2]], [[3], [4.5]]],
                                [[5, 6], [7, 8e0]]]})",
                            pictures);  // the second without its last axis of 1
  CHECK(rows.examples == 2);
  CHECK(rows.inputs == ExampleValues{{1, 2, 3, 4.5F, 5, 6, 7, 8}});
  CHECK(!rows.is_columnar);
  const PredictRequest columns = parse_predict_request(R"({"inputs": [[[1, 2], [3, 4]]]})", pictures);
  CHECK(columns.is_columnar);
  CHECK(columns.inputs == ExampleValues{{1, 2, 3, 4}});
  CHECK(parse_predict_request(R"({"instances": [{"image": [[1, 2], [3, 4]]}]})", pictures).inputs == columns.inputs);
}

TEST_CASE("inputs of several names are objects") {
  const ExampleValues expected{{1, 2, 3, 4}, {7, 9}};
  CHECK(parse_predict_request(R"({"instances": [{"index": 7, "a": [1, 2]}, {"a": [3, 4], "index": [9.0]}]})", several)
            .inputs == expected);
  CHECK(parse_predict_request(R"({"inputs": {"a": [[1, 2], [3, 4]], "index": [7, 9]}})", several).inputs == expected);
}

TEST_CASE("a request that does not fit is refused by one sentence that names the place") {
  CHECK(refusal("") == "the body is not JSON at byte 1");
  CHECK(refusal("[1]").find("must be a JSON object") != std::string::npos);
  CHECK(refusal("{}") == R"(the body must have either "instances" or "inputs")");
  CHECK(refusal(R"({"instances": [], "inputs": []})") == R"(the body must have either "instances" or "inputs")");
  CHECK(refusal(R"({"instances": []})").find("an entry for each example") != std::string::npos);
  CHECK(refusal(R"({"instances": [[[1, 2], [3, 4]], [[1, 2], [3]]]})") ==
        "instances[1] has 1 values on an axis of 2; the model takes the shape (2, 2, 1)");
  CHECK(refusal(R"({"instances": [[[1, 2], [3, "4"]]]})").find("a string where a number is due") != std::string::npos);
  CHECK(refusal(R"({"instances": [[1, 2, 3, 4]]})").find("has 4 values on an axis of 2") != std::string::npos);
  CHECK(refusal(R"({"instances": [[[1, 2], [3, 1e39]]]})").find("infinite in float32") != std::string::npos);
  CHECK(refusal(R"({"instances": [[[1, 2], [3, 1e999]]]})") == "the body has a number that is too large");
  CHECK(refusal(R"({"instances": [[[1, 2], [3, NaN]]]})") == "the body is not JSON at byte 29; numbers must be finite");
  CHECK(refusal(R"({"instances": [{"picture": 1}]})").find("no input 'image'") != std::string::npos);
  CHECK(refusal(R"({"instances": [[1]], "seed": 1})").find("unknown key 'seed'") != std::string::npos);
  CHECK(refusal(R"({"instances": [[1]], "signature_name": "other"})").find("serving_default") != std::string::npos);
  CHECK(refusal(R"({"instances": [{"a": [1, 2], "index": 0.5}]})", several).find("whole numbers") != std::string::npos);
  CHECK(refusal(R"({"instances": [[1, 2]]})", several).find("an object with the inputs a, index") != std::string::npos);
  CHECK(
      refusal(R"({"instances": [{"a": [1, 2], "index": 0, "b": 1}]})", several).find("more than the model's inputs") !=
      std::string::npos);
  CHECK(refusal(R"({"inputs": {"a": [[1, 2]], "index": [1, 2]}})", several).find("1 examples of one input and 2 of") !=
        std::string::npos);
}

TEST_CASE("a body that is nested too deep is refused before it is parsed") {
  const auto nested = [](std::size_t arrays) {
    return R"({"instances": )" + std::string(arrays, '[') + "1" + std::string(arrays, ']') + "}";
  };
  CHECK(refusal(nested(5)) == "instances[0] has 1 values on an axis of 2; the model takes the shape (2, 2, 1)");
  CHECK(refusal(nested(6)) ==
        "the body is nested too deep at byte 20; a request for this model has at most 6 arrays and objects within each "
        "other");
  CHECK(refusal(std::string(100'000, '[')).find("nested too deep at byte 7;") != std::string::npos);
  CHECK(refusal(R"({"a": "[[[[[[[[\"[[[[[[[[\\", "b": 1})").find("unknown key 'a'") != std::string::npos);  // no arrays
  CHECK(refusal(R"({"a": "\\", "b": [[[[[[[[)").find("nested too deep") != std::string::npos);
  CHECK(parse_predict_request(R"({"instances": [{"image": [[[1], [2]], [[3], [4]]]}, {"image": [[1, 2], [3, 4]]}]})",
                              pictures)
            .examples == 2);
}

TEST_CASE("a number beyond the limits of its input is refused by name, value and limit") {
  const ModelSignature words{.inputs = {{"word", {2}, {.embedding = "rows", .rows = 5}}}, .outputs = {{"x", {}}}};
  CHECK(parse_predict_request(R"({"instances": [[0, 4]]})", words).inputs == ExampleValues{{0, 4}});
  CHECK(refusal(R"({"instances": [[0, 4], [1, 5]]})", words) ==
        "instances[1] has the number 5, but the input 'word' is read by layer 'rows' (Embedding), which takes whole "
        "numbers from 0 to 4");
  CHECK(refusal(R"({"inputs": [[-1, 0]]})", words).find("inputs[0] has the number -1,") == 0);
  CHECK(refusal(R"({"instances": [[0.5, 0]]})", words).find("has the number 0.5,") != std::string::npos);
  const ModelSignature bytes{.inputs = {{"pixel", {1}, {.type = InputType::uint8}}}, .outputs = {{"x", {}}}};
  CHECK(parse_predict_request(R"({"instances": [0, 255]})", bytes).examples == 2);
  CHECK(refusal(R"({"instances": [255, 256]})", bytes) ==
        "instances[1] has the number 256, but the input 'pixel' is uint8, which holds whole numbers from 0 to 255");
}

TEST_CASE("predictions have the form of their request") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ExampleValues classes{{0.25F, 1, nan, 0.1F, 2, 3}};
  CHECK(format_predictions(classes, pictures, 2, false) == "{\"predictions\":[[0.25,1,null],[0.1,2,3]]}\n");
  CHECK(format_predictions(classes, pictures, 2, true) == "{\"outputs\":[[0.25,1,null],[0.1,2,3]]}\n");
  const ExampleValues both{{1, 2}, {3, 4, 5, 6}};
  CHECK(format_predictions(both, several, 2, false) ==
        "{\"predictions\":[{\"x\":1,\"y\":[[3],[4]]},{\"x\":2,\"y\":[[5],[6]]}]}\n");
  CHECK(format_predictions(both, several, 2, true) == "{\"outputs\":{\"x\":[1,2],\"y\":[[[3],[4]],[[5],[6]]]}}\n");
}
