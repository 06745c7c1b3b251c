// See keras_optimizer_read.hpp.
#include "checkpoint/keras/keras_optimizer_read.hpp"

#include "checkpoint/keras/field_reader.hpp"
#include "core/join_words.hpp"
#include "core/lower_case.hpp"
#include "core/variant_types.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

/// Keras finds "sgd" and "SGD", but a class by its own name only.
bool names(const ClassConfig& described, std::string_view class_name) {
  if (described.form != ConfigForm::name) return described.class_name == class_name;
  return lower_case(described.class_name) == lower_case(std::string(class_name));
}

Optimizer read_class(const ClassConfig& described, ConfigReader& config, const std::string& where) {
  std::optional<Optimizer> optimizer;
  std::vector<std::string_view> known;
  for_each_alternative<Optimizer>([&]<typename Options>(std::type_identity<Options>) {
    known.push_back(OptimizerTraits<Options>::class_name);
    if (!names(described, known.back())) return;
    Options options;
    FieldReader reader(config, where);
    visit_fields(reader, options);
    optimizer = options;
  });
  if (!optimizer) config.fail("is not one of " + join_words(known) + compile_remedy);
  return *optimizer;
}

/// Whether an optimizer of TensorFlow 2.10 or earlier computes otherwise than that of Keras 3: its RMSprop always, its
/// Adagrad because it adds epsilon to the root.
bool computes_otherwise_in_keras2(const Optimizer& optimizer) {
  if (const auto* const adagrad = std::get_if<Adagrad>(&optimizer)) {
    const Adagrad usual;  // whose accumulators make epsilon insignificant
    return adagrad->epsilon > usual.epsilon || adagrad->initial_accumulator_value < usual.initial_accumulator_value;
  }
  return std::holds_alternative<RMSprop>(optimizer);
}

}  // namespace

Optimizer read_optimizer(const nlohmann::json& value, const std::string& source, KerasVersion version) {
  ClassConfig described(value, source + ": the optimizer");
  if (version == KerasVersion::two && described.class_name.starts_with("Custom>"))
    described.class_name.erase(0, 7);  // its prefix for its own optimizers, too
  const std::string where = source + ": the optimizer " + described.class_name;
  ConfigReader config(*described.config, where);
  Optimizer optimizer = read_class(described, config, where);
  // These do not change the result.
  config.ignore({"name", "jit_compile", "is_legacy_optimizer"});
  if (computes_otherwise_in_keras2(optimizer) && config.find("decay") != nullptr) {
    config.fail("is a legacy one (of TensorFlow 2.10 or earlier), which computes otherwise" +
                std::string(compile_remedy));
  }
  config.expect("decay", 0.0);
  if (!config.was_read("weight_decay")) config.expect("weight_decay", 0.0);
  config.reject_unread_keys();
  try {
    check(optimizer);
  } catch (const UsageError& error) {
    throw DataError(source + ": " + error.what());
  }
  return optimizer;
}

}  // namespace lockstep
