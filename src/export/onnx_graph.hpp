// A model as ONNX describes it: operators on named tensors, without ONNX's own types. onnx_file.hpp writes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// The versions of ONNX's operators that the export knows. 17 is the newest that Debian 12's libraries read, and the
/// oldest with LayerNormalization.
inline constexpr int default_onnx_opset = 17;
inline constexpr int max_onnx_opset = 21;

/// ONNX's element types, by ONNX's numbers.
enum class OnnxType { float32 = 1, uint8 = 2, int32 = 6, int64 = 7, boolean = 9 };

/// A constant, row-major.
struct OnnxConstant {
  std::string name;
  std::vector<std::int64_t> dims;  ///< none: a scalar
  std::variant<std::vector<float>, std::vector<std::int64_t>> values;
};

struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>> value;
};

/// One operator. All that the export uses have one output.
struct OnnxNode {
  std::string op_type;  ///< "Conv"
  std::string name;     ///< of the layer that it comes from
  std::vector<std::string> inputs;
  std::string output;
  std::vector<OnnxAttribute> attributes = {};
};

/// An input or output of the model. A free dimension for the batch precedes `dims`.
struct OnnxPort {
  std::string name;
  OnnxType type = OnnxType::float32;
  std::vector<std::int64_t> dims;
};

struct OnnxGraph {
  std::string name;
  int opset = default_onnx_opset;
  std::vector<OnnxPort> inputs;
  std::vector<OnnxPort> outputs;
  std::vector<OnnxConstant> constants;
  std::vector<OnnxNode> nodes;  ///< each after those whose outputs it reads
};

}  // namespace lockstep
