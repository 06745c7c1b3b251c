// See data_digest.hpp.
#include "session/data_digest.hpp"

#include "core/digest.hpp"
#include <fmt/format.h>
#include <string>
#include <variant>

namespace lockstep {

std::string digest_of(const Dataset& data) {
  Digest digest;
  const auto add = [&](const auto& values) { digest.add(values.data(), values.size() * sizeof(values[0])); };
  std::string shapes;
  for (const InputArray& array : data.inputs) {
    std::visit(add, array.values);
    if (!array.name.empty()) digest.add(array.name.data(), array.name.size());
    if (!shapes.empty()) shapes += " and ";
    shapes += array.name.empty() ? array.shape.to_string() : array.name + " " + array.shape.to_string();
  }
  for (const TargetArray& array : data.targets) {
    std::visit(add, array.values);
    if (!array.name.empty()) digest.add(array.name.data(), array.name.size());
  }
  if (!data.sample_weights.empty()) add(data.sample_weights);
  const std::string size = fmt::format("{} examples of {}", data.size(), shapes);
  return data.is_refilled ? size : fmt::format("{} (digest {})", size, digest.to_string());
}

}  // namespace lockstep
