// Datasets in memory files that this process inherited: the arrays of a program that called lockstep.fit.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace lockstep {

/// {"x": [ARRAY, ...], "y": [ARRAY, ...] or null, "sample_weight": ARRAY or null}, where ARRAY is {"descriptor": 7,
/// "type": "float32", "shape": [examples, ...]}, and has a "name" where the caller gave a dict. "refilled": true if the
/// caller writes other examples there before each epoch. Maps the arrays, which
/// are bytes or float32, for targets int32 (class indices, one per example) or float32, and for weights float32. Throws
/// DataError for anything else, or a file that is too short.
[[nodiscard]] Dataset map_dataset(const nlohmann::json& description, const std::string& source);

}  // namespace lockstep
