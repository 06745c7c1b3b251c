// See predict_json.hpp.
#include "serve/predict_json.hpp"

#include "core/aligned_buffer.hpp"
#include "core/enum_names.hpp"
#include "core/printable.hpp"
#include "graph/input_numbers.hpp"
#include "layers/input.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

using nlohmann::json;

/// For each "0," the parser takes 16 bytes, twice that while its array grows, and 16 more to release it.
constexpr std::size_t parser_bytes_per_byte = 32;
constexpr std::size_t small_body = std::size_t{64} << 10U;  // is parsed in a few MiB

std::string_view range_of(InputType type) {
  switch (type) {
    case InputType::float32: return "any number";
    case InputType::boolean: return "0 and 1";
    case InputType::uint8: return "whole numbers from 0 to 255";
    case InputType::int32: return "whole numbers of 32 bits";
    case InputType::int64: return "whole numbers of 64 bits";
  }
  return "";
}

/// Numbers of one tensor of one example, which stand at `where` in the request.
class ExampleReader {
 public:
  ExampleReader(const TensorSignature& tensor, std::string where, std::vector<float>& values)
      : tensor_(tensor), where_(std::move(where)), values_(values) {}

  void read(const json& value) { read(value, tensor_.shape.extents()); }

 private:
  void read(const json& value, std::span<const std::int64_t> extents) {
    const bool lacks_axis_of_1 = extents.size() == 1 && extents.front() == 1 && !value.is_array();
    if (extents.empty() || lacks_axis_of_1) return read_number(value);
    if (!value.is_array()) fail_by_shape(fmt::format("has a {} where an array is due", value.type_name()));
    if (static_cast<std::int64_t>(value.size()) != extents.front())
      fail_by_shape(fmt::format("has {} values on an axis of {}", value.size(), extents.front()));
    for (const json& each : value) read(each, extents.subspan(1));
  }

  void read_number(const json& value) {
    if (!value.is_number()) fail_by_shape(fmt::format("has a {} where a number is due", value.type_name()));
    const auto number = value.get<double>();
    if (std::abs(number) > std::numeric_limits<float>::max()) fail_by_shape("has a number that is infinite in float32");
    const NumbersOfInput& taken = tensor_.numbers;
    if (!fits(number, taken.type))
      fail_by_number(number, fmt::format("is {}, which holds {}", enum_name(taken.type), range_of(taken.type)));
    if (!taken.embedding.empty() && !is_row(number, taken.rows)) {
      fail_by_number(number, fmt::format("is read by layer '{}' (Embedding), which takes whole numbers from 0 to {}",
                                         printable(taken.embedding), taken.rows - 1));
    }
    values_.push_back(static_cast<float>(number));
  }

  [[noreturn]] void fail_by_shape(const std::string& problem) const {
    throw DataError(fmt::format("{} {}; the model takes the shape {}", where_, problem, tensor_.shape.to_string()));
  }

  [[noreturn]] void fail_by_number(double number, const std::string& limit) const {
    throw DataError(
        fmt::format("{} has the number {}, but the input '{}' {}", where_, number, printable(tensor_.name), limit));
  }

  const TensorSignature& tensor_;
  std::string where_;
  std::vector<float>& values_;
};

std::string names_of(const ModelSignature& signature) {
  std::string names;
  for (const TensorSignature& input : signature.inputs) names += (names.empty() ? "" : ", ") + input.name;
  return printable(names);
}

/// The values of each input in an object by their names. A model of one input needs no object.
std::vector<const json*> by_input(const json& value, const ModelSignature& signature, const std::string& where) {
  if (signature.inputs.size() == 1 && !value.is_object()) return {&value};
  if (!value.is_object())
    throw DataError(fmt::format("{} must be an object with the inputs {}", where, names_of(signature)));
  std::vector<const json*> values;
  for (const TensorSignature& input : signature.inputs) {
    const auto found = value.find(input.name);
    if (found == value.end())
      throw DataError(
          fmt::format("{} has no input '{}'; the model takes {}", where, printable(input.name), names_of(signature)));
    values.push_back(&*found);
  }
  if (value.size() > values.size())
    throw DataError(fmt::format("{} has more than the model's inputs, which are {}", where, names_of(signature)));
  return values;
}

void read_instances(const json& instances, const ModelSignature& signature, PredictRequest& request) {
  if (!instances.is_array() || instances.empty())
    throw DataError("\"instances\" must be an array with an entry for each example");
  request.examples = instances.size();
  for (std::size_t i = 0; i < signature.inputs.size(); ++i)
    request.inputs[i].reserve(std::min<std::size_t>(request.examples, 1024) *
                              static_cast<std::size_t>(signature.inputs[i].shape.elements()));
  for (std::size_t example = 0; example < instances.size(); ++example) {
    const std::string where = fmt::format("instances[{}]", example);
    const std::vector<const json*> values = by_input(instances[example], signature, where);
    for (std::size_t i = 0; i < values.size(); ++i)
      ExampleReader(signature.inputs[i], where, request.inputs[i]).read(*values[i]);
  }
}

void read_columns(const json& inputs, const ModelSignature& signature, PredictRequest& request) {
  const std::vector<const json*> columns = by_input(inputs, signature, "\"inputs\"");
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const json& column = *columns[i];
    if (!column.is_array() || column.empty())
      throw DataError("\"inputs\" must have an array with an entry for each example");
    if (i > 0 && column.size() != request.examples)
      throw DataError(
          fmt::format("\"inputs\" has {} examples of one input and {} of another", request.examples, column.size()));
    request.examples = column.size();
    for (std::size_t example = 0; example < column.size(); ++example)
      ExampleReader(signature.inputs[i], fmt::format("inputs[{}]", example), request.inputs[i]).read(column[example]);
  }
}

void append_tensor(std::string& text, std::span<const float> values, std::span<const std::int64_t> extents) {
  if (extents.empty()) {
    if (std::isfinite(values.front())) {
      fmt::format_to(std::back_inserter(text), "{}", values.front());
    } else {
      text += "null";
    }
    return;
  }
  const auto count = static_cast<std::size_t>(extents.front());
  const std::size_t elements = values.size() / count;
  text += '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    append_tensor(text, values.subspan(i * elements, elements), extents.subspan(1));
  }
  text += ']';
}

/// One example of each output: a tensor, or of several outputs an object.
void append_example(std::string& text, const ExampleValues& outputs, const ModelSignature& signature,
                    std::size_t example) {
  const bool is_object = outputs.size() > 1;
  if (is_object) text += '{';
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Shape& shape = signature.outputs[i].shape;
    const auto elements = static_cast<std::size_t>(shape.elements());
    if (is_object) text += (i > 0 ? "," : "") + json(signature.outputs[i].name).dump() + ":";
    append_tensor(text, std::span(outputs[i]).subspan(example * elements, elements), shape.extents());
  }
  if (is_object) text += '}';
}

/// The parser would allocate for each bracket. Stops at the first one that is nested too deep.
void check_depth(std::string_view body, std::size_t max_depth) {
  std::size_t depth = 0;
  bool is_in_string = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '"') is_in_string = !is_in_string;
    if (is_in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) {
        throw DataError(
            fmt::format("the body is nested too deep at byte {}; a request for this model has at most {} "
                        "arrays and objects within each other",
                        i + 1, max_depth));
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

/// "instances" or "inputs" in the body, an array of examples, an object of inputs, and the axes of an input.
std::size_t max_depth_of(const ModelSignature& signature) {
  std::size_t axes = 0;
  for (const TensorSignature& input : signature.inputs) axes = std::max(axes, input.shape.extents().size());
  return axes + 3;
}

json parse_body(std::string_view body) {
  try {
    return json::parse(body);
  } catch (const json::out_of_range&) {
    throw DataError("the body has a number that is too large");
  } catch (const json::parse_error& error) {
    throw DataError(fmt::format("the body is not JSON at byte {}{}", error.byte,
                                body.find("NaN") < error.byte ? "; numbers must be finite" : ""));
  }
}

}  // namespace

PredictRequest parse_predict_request(std::string_view body, const ModelSignature& signature) {
  check_depth(body, max_depth_of(signature));
  // The parser's destructors allocate, and end the process if they cannot: this throws before the parser begins.
  if (body.size() >= small_body) static_cast<void>(AlignedBuffer(body.size() * parser_bytes_per_byte));
  const json parsed = parse_body(body);
  if (!parsed.is_object()) throw DataError(R"(the body must be a JSON object with "instances" or "inputs")");
  for (const auto& [key, value] : parsed.items()) {
    if (key == "instances" || key == "inputs") continue;
    if (key != "signature_name") throw DataError(fmt::format("the body has an unknown key '{}'", printable(key)));
    if (value != "serving_default") throw DataError("the only \"signature_name\" is serving_default");
  }
  const auto instances = parsed.find("instances");
  const auto inputs = parsed.find("inputs");
  if ((instances == parsed.end()) == (inputs == parsed.end()))
    throw DataError(R"(the body must have either "instances" or "inputs")");
  PredictRequest request;
  request.inputs.resize(signature.inputs.size());
  request.is_columnar = inputs != parsed.end();
  if (request.is_columnar) {
    read_columns(*inputs, signature, request);
  } else {
    read_instances(*instances, signature, request);
  }
  return request;
}

std::string format_predictions(const ExampleValues& outputs, const ModelSignature& signature, std::size_t examples,
                               bool is_columnar) {
  std::string text = is_columnar ? "{\"outputs\":" : "{\"predictions\":";
  if (!is_columnar || outputs.size() == 1) {
    text += '[';
    for (std::size_t example = 0; example < examples; ++example) {
      if (example > 0) text += ',';
      append_example(text, outputs, signature, example);
    }
    text += ']';
  } else {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      text += (i == 0 ? "{" : ",") + json(signature.outputs[i].name).dump() + ":";
      std::vector<std::int64_t> extents{static_cast<std::int64_t>(examples)};
      std::ranges::copy(signature.outputs[i].shape.extents(), std::back_inserter(extents));
      append_tensor(text, outputs[i], extents);
    }
    text += '}';
  }
  text += "}\n";
  return text;
}

}  // namespace lockstep
