// Models for the tests of this room: any chain of the layers there are, with random options, weights and training.
#pragma once

#include "checkpoint/saved_model.hpp"
#include "core/random.hpp"

#include <cstdint>

namespace lockstep::testing {

/// The same seed gives the same model. Together, a few hundred seeds cover every layer, option, optimizer and loss.
SavedModel random_model(std::uint64_t seed);

/// Values for a model of this architecture: normal draws.
void fill(std::vector<SavedTensor>& tensors, RandomStream& random);

/// Whether everything that files hold is equal, bit for bit; on a difference `why` names it.
bool equal(const SavedModel& left, const SavedModel& right, std::string& why);

}  // namespace lockstep::testing
