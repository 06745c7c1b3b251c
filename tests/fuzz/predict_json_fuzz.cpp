// Fuzzes the bodies of prediction requests. Any bytes must be a request with as many values as its examples have, or a
// DataError.
#include "serve/predict_json.hpp"

#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace lockstep;

const ModelSignature one{.inputs = {{"image", {2, 1}}}, .outputs = {{"classes", {2}}}};
const ModelSignature several{
    .inputs = {{"a", {}}, {"b", {1}, {.type = InputType::int32, .embedding = "rows", .rows = 10}}},
    .outputs = {{"x", {}}, {"y", {1}}}};

void judge(std::string_view body, const ModelSignature& signature) {
  try {
    const PredictRequest request = parse_predict_request(body, signature);
    if (request.examples == 0 || request.inputs.size() != signature.inputs.size()) std::abort();
    for (std::size_t i = 0; i < request.inputs.size(); ++i) {
      const auto elements = static_cast<std::size_t>(signature.inputs[i].shape.elements());
      if (request.inputs[i].size() != request.examples * elements) std::abort();
      for (const float value : request.inputs[i])
        if (!std::isfinite(value)) std::abort();
    }
  } catch (const DataError&) {
    return;
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds{
      R"({"instances": [[[1], [2e3]], [3, -4.5]]})", R"({"inputs": [[1, 2]], "signature_name": "serving_default"})",
      R"({"instances": [{"a": 1, "b": [2]}, {"a": 0.5, "b": 3}]})", R"({"inputs": {"a": [1, 2], "b": [3, 4]}})"};
  return lockstep::testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  judge(body, one);
  judge(body, several);
  return 0;
}
