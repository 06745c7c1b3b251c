// `lockstep export`: a model's file in the format of another program.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>

namespace lockstep {

ExitCode export_model(std::span<const std::string> args, std::ostream& out);

}  // namespace lockstep
