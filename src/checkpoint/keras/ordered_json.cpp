// See ordered_json.hpp.
#include "checkpoint/keras/ordered_json.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

std::string dump_json(const nlohmann::ordered_json& value) {
  try {
    return value.dump();
  } catch (const nlohmann::ordered_json::exception&) {
    throw UsageError("a name in the model is not UTF-8, which Keras' files require; rename the layer or the model");
  }
}

}  // namespace lockstep
