// A division as a backup keeps it, told to a person who may want it back.
#pragma once

#include "backend/backend.hpp"

#include <string>

namespace lockstep {

/// `kept`: what ModelState::made_by() says, "features appppccra". For a person: "2 workers, by features: conv2d by
/// channels, dense by input channels".
[[nodiscard]] std::string division_in_words(const std::string& kept, const Graph& whole, int ranks);

}  // namespace lockstep
