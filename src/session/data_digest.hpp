// A digest of a dataset, by which workers check that they train on the same data.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <string>

namespace lockstep {

/// "60000 examples of (28, 28) (digest 0123456789abcdef)". Reads all inputs, targets and sample weights. Of data that
/// is refilled: "60000 examples of (28, 28)".
[[nodiscard]] std::string digest_of(const Dataset& data);

}  // namespace lockstep
