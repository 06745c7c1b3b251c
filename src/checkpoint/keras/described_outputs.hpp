// What a training configuration depends on of a model's outputs: their names, and what "accuracy" is for each.
#pragma once

#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct DescribedOutput {
  std::string name = {};                       ///< Architecture::output_name()
  std::optional<std::int64_t> last_axis = {};  ///< its extent; none: not known
};

struct DescribedOutputs {
  DescribedOutputs() = default;
  // NOLINTBEGIN(google-explicit-constructor): an output, or those of a model
  DescribedOutputs(std::optional<std::int64_t> last_axis) { all.front().last_axis = last_axis; }
  DescribedOutputs(std::int64_t last_axis) { all.front().last_axis = last_axis; }
  DescribedOutputs(const Architecture& model) {
    all.clear();
    for (std::size_t i = 0; i < model.outputs().size(); ++i)
      all.push_back({model.output_name(i), model.output_shape(i).extents().back()});
  }
  // NOLINTEND(google-explicit-constructor)

  std::vector<DescribedOutput> all{DescribedOutput()};  ///< in the model's order
};

}  // namespace lockstep
