// See data_digest.hpp.
#include "training/data_digest.hpp"

#include "core/digest.hpp"
#include <string>
#include <variant>

namespace lockstep {

std::string digest_of(const Dataset& data) {
  Digest digest;
  const auto add = [&](const auto& values) { digest.add(values.data(), values.size() * sizeof(values[0])); };
  std::visit(add, data.inputs);
  std::visit(add, data.targets);
  return std::to_string(data.size()) + " examples of " + data.example_shape.to_string() + " (digest " +
         digest.to_string() + ")";
}

}  // namespace lockstep
