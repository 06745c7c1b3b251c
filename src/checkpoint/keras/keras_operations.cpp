// See keras_operations.hpp.
#include "checkpoint/keras/keras_operations.hpp"

#include "checkpoint/keras/config_reader.hpp"
#include "core/join_words.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

/// y = scale x + offset.
struct ScaleAndOffset {
  double scale;
  double offset;
};

/// An operation of a tensor and a number, or of two tensors.
struct BinaryOperation {
  std::string_view class_name;
  std::string_view merge;  ///< the layer for two tensors; empty: none
  ScaleAndOffset (*tensor_and_number)(double number);
  ScaleAndOffset (*number_and_tensor)(double number);  ///< null: not a scale and an offset
};

constexpr std::array binary_operations{
    BinaryOperation{"Add", "Add",
                    [](double c) {
                      return ScaleAndOffset{1, c};
                    },
                    [](double c) {
                      return ScaleAndOffset{1, c};
                    }},
    BinaryOperation{"Subtract", "Subtract",
                    [](double c) {
                      return ScaleAndOffset{1, -c};
                    },
                    [](double c) {
                      return ScaleAndOffset{-1, c};
                    }},
    BinaryOperation{"Multiply", "Multiply",
                    [](double c) {
                      return ScaleAndOffset{c, 0};
                    },
                    [](double c) {
                      return ScaleAndOffset{c, 0};
                    }},
    BinaryOperation{"TrueDivide", "",
                    [](double c) {
                      return ScaleAndOffset{1 / c, 0};
                    },
                    nullptr},
    BinaryOperation{"Divide", "",
                    [](double c) {
                      return ScaleAndOffset{1 / c, 0};
                    },
                    nullptr},
    BinaryOperation{"Maximum", "Maximum", nullptr, nullptr},
    BinaryOperation{"Minimum", "Minimum", nullptr, nullptr},
};

/// An operation of one tensor without options, and Keras' activation function that computes the same.
struct Function {
  std::string_view class_name;
  std::string_view activation;
};

constexpr std::array functions{
    Function{"Relu", "relu"},         Function{"Relu6", "relu6"},
    Function{"Sigmoid", "sigmoid"},   Function{"HardSigmoid", "hard_sigmoid"},
    Function{"Silu", "silu"},         Function{"HardSilu", "hard_silu"},
    Function{"Selu", "selu"},         Function{"Softplus", "softplus"},
    Function{"Softsign", "softsign"}, Function{"Tanh", "tanh"},
    Function{"Exp", "exponential"},
};

bool is_operation(const json& entry) {
  if (!entry.is_object()) return false;
  const auto module = entry.find("module");
  return module != entry.end() && module->is_string() &&
         module->get_ref<const std::string&>().starts_with("keras.src.ops.");
}

std::string known_operations() {
  std::vector<std::string_view> names;
  names.reserve(binary_operations.size() + functions.size() + 1);
  for (const BinaryOperation& operation : binary_operations) names.push_back(operation.class_name);
  for (const Function& function : functions) names.push_back(function.class_name);
  names.emplace_back("Negative");
  return join_words(names);
}

/// Converts one operation.
class OperationReader {
 public:
  OperationReader(const json& entry, const std::string& source, std::size_t index)
      : entry_(entry),
        class_name_(entry.value("class_name", json()).is_string() ? entry["class_name"].get<std::string>() : "?"),
        config_(entry.value("config", json::object())),
        reader_(config_, fmt::format("{}: layer {} ({} of keras.ops)", source, index, class_name_)) {}

  json run() {
    name_ = reader_.text("name");
    read_call();
    json layer = convert();
    reader_.reject_unread_keys();
    json config = std::move(layer["config"]);
    config["name"] = name_;
    return {{"class_name", layer["class_name"]},
            {"config", std::move(config)},
            {"name", name_},
            {"inbound_nodes", json::array({{{"args", json::array({tensors_})}, {"kwargs", json::object()}}})}};
  }

 private:
  static json layer(std::string_view class_name, json config = json::object()) {
    return {{"class_name", class_name}, {"config", std::move(config)}};
  }

  static json rescaling(const ScaleAndOffset& affine) {
    return layer("Rescaling", {{"scale", affine.scale}, {"offset", affine.offset}});
  }

  /// Splits the arguments of the only call into tensors and a number.
  void read_call() {
    const json nodes = entry_.value("inbound_nodes", json());
    if (!nodes.is_array() || nodes.size() != 1 || !nodes[0].is_object() || !nodes[0].value("args", json()).is_array()) {
      reader_.fail("is called in a way that Lockstep does not support");
    }
    if (!nodes[0].value("kwargs", json::object()).empty()) {
      reader_.fail("is called with arguments by name, which Lockstep does not support; pass them by position");
    }
    const json& args = nodes[0]["args"];
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (args[i].is_number()) {
        ++numbers_;
        number_ = args[i].get<double>();
        number_is_first_ = i == 0;
      } else if (args[i].is_object() && args[i].value("class_name", json()) == json("__keras_tensor__")) {
        tensors_.push_back(args[i]);
      } else {
        reader_.fail("is called on something other than layers' outputs and a number, which Lockstep does not support");
      }
    }
  }

  json convert() {
    const auto named = [&](const auto& any) { return any.class_name == class_name_; };
    const auto* const binary = std::ranges::find_if(binary_operations, named);
    if (binary != binary_operations.end()) return convert_binary(*binary);
    if (tensors_.size() != 1 || numbers_ != 0) fail_unknown();
    if (class_name_ == "Negative") return rescaling({-1, 0});
    const auto* const function = std::ranges::find_if(functions, named);
    if (function == functions.end()) fail_unknown();
    return layer("Activation", {{"activation", function->activation}});
  }

  [[nodiscard]] json convert_binary(const BinaryOperation& operation) const {
    if (tensors_.size() == 2 && numbers_ == 0 && !operation.merge.empty()) return layer(operation.merge);
    const auto affine = number_is_first_ ? operation.number_and_tensor : operation.tensor_and_number;
    if (tensors_.size() != 1 || numbers_ != 1 || affine == nullptr) fail_unknown();
    return rescaling(affine(number_));
  }

  [[noreturn]] void fail_unknown() const {
    reader_.fail(
        "is an operation that Lockstep does not have; on a tensor, or on a tensor and a number or another tensor, it "
        "has " +
        known_operations() + "; use a layer that computes the same");
  }

  const json& entry_;
  std::string class_name_;
  json config_;
  ConfigReader reader_;
  std::string name_;
  json tensors_ = json::array();
  int numbers_ = 0;
  double number_ = 0;
  bool number_is_first_ = false;
};

}  // namespace

json operations_as_layers(const json& layers, const std::string& source) {
  json converted = layers;
  for (std::size_t i = 0; i < converted.size(); ++i) {
    if (is_operation(converted[i])) converted[i] = OperationReader(layers[i], source, i).run();
  }
  return converted;
}

}  // namespace lockstep
