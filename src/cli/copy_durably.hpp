// Copies of models, which an evaluator keeps.
#pragma once

#include <filesystem>

namespace lockstep {

/// Makes `target` a durable copy of the file, which appears whole. Throws IoError.
void copy_durably(const std::filesystem::path& from, const std::filesystem::path& target);

}  // namespace lockstep
