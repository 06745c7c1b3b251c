// What is predicted of a model's steps, in lines for a person.
#pragma once

#include "training/runtime.hpp"

#include <lockstep/training/model.hpp>

#include <string>

namespace lockstep {

/// See Model::predict_steps.
[[nodiscard]] std::string describe_steps(const Runtime& runtime, const Sequential& architecture,
                                         const CompileOptions& compilation, const PredictionOptions& options);

}  // namespace lockstep
