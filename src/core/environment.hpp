// Reads environment variables. Code that depends on them takes an Environment, so that tests can pass their own.
#pragma once

#include <map>
#include <string>

namespace lockstep {

using Environment = std::map<std::string, std::string>;

/// All variables of this process.
[[nodiscard]] Environment current_environment();

/// The variable's value, or "" if it is not set.
[[nodiscard]] std::string value_of(const Environment& environment, const std::string& name);

/// The environment variable of an option: "LOCKSTEP_MAX_RESTARTS" for "max-restarts".
[[nodiscard]] std::string variable_of_option(const std::string& name);

/// The rank that a launcher (Open MPI, PMIx, Slurm) gave this process; 0 without a launcher. Known before MPI_Init, so
/// that only one process of a world prints early messages.
[[nodiscard]] int launcher_rank(const Environment& environment);

}  // namespace lockstep
