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
  std::visit(add, data.inputs);
  std::visit(add, data.targets);
  if (!data.sample_weights.empty()) add(data.sample_weights);
  return fmt::format("{} examples of {} (digest {})", data.size(), data.example_shape.to_string(), digest.to_string());
}

}  // namespace lockstep
