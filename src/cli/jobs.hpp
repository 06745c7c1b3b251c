// The commands of `lockstep` that run on all workers of a world: programs like those in models/, whose errors end the
// whole world, so that nobody may catch them on the way (see training/error_handler.hpp).
#pragma once

#include <span>
#include <string>

namespace lockstep {

struct Job {
  std::string name;
  std::string help;
  void (*run)(std::span<const std::string> args);  ///< those after the command
};

[[nodiscard]] std::span<const Job> jobs();

}  // namespace lockstep
