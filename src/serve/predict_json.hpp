// The bodies of a prediction's request and reply, as TensorFlow Serving's REST interface has them:
// https://www.tensorflow.org/tfx/serving/api_rest#predict_api
#pragma once

#include "serve/signature.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Values of some examples: by input or output of a model, row-major [examples, elements].
using ExampleValues = std::vector<std::vector<float>>;

struct PredictRequest {
  std::size_t examples = 0;
  ExampleValues inputs;
  bool is_columnar =
      false;  ///< "inputs" has all examples of each input; else "instances" has one example after another
};

/// Throws DataError, one sentence on what is wrong and where, unless `body` is a request for this model: a JSON object
/// with "instances" or "inputs" of the right shapes, all numbers finite in float32 and within the limits of their
/// inputs. A last axis of 1 may be missing. Throws std::bad_alloc if memory is short.
[[nodiscard]] PredictRequest parse_predict_request(std::string_view body, const ModelSignature& signature);

/// {"predictions": [...]}, or {"outputs": ...} for a columnar request. NaN and infinity become null.
[[nodiscard]] std::string format_predictions(const ExampleValues& outputs, const ModelSignature& signature,
                                             std::size_t examples, bool is_columnar);

}  // namespace lockstep
