// Random models for the tests of this module: chains of all layers with random options, weights and training states.
#pragma once

#include "checkpoint/model_data.hpp"
#include "core/random.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing {

/// The same seed gives the same model. Together, a few hundred seeds cover every layer, option, optimizer and loss.
ModelData random_model(std::uint64_t seed);

/// Whether layers of the class read the data, so that a random model, which may have any layers before them, has none.
bool reads_data(std::string_view class_name);

/// Fills tensors with normal draws.
void fill(std::vector<NamedTensor>& tensors, RandomStream& random);

/// Whether everything that files hold is equal, bit for bit. Otherwise `why` names the difference.
bool equal(const ModelData& left, const ModelData& right, std::string& why);

}  // namespace lockstep::testing
