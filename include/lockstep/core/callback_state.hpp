// What a callback remembers between epochs. Backups save it.
#pragma once

#include <lockstep/core/named_tensor.hpp>

#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct CallbackState {
  std::map<std::string, double> numbers = {};
  std::map<std::string, std::string> texts = {};
  std::vector<NamedTensor> arrays = {};

  /// The number called `name`, or `otherwise` if it is not set.
  [[nodiscard]] double number(const std::string& name, double otherwise) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? otherwise : found->second;
  }
};

}  // namespace lockstep
