// The one door to environment variables: a copy, taken once by whoever starts something, so that the rest can be tested
// with an environment of its own.
#pragma once

#include <map>
#include <string>

namespace lockstep {

using Environment = std::map<std::string, std::string>;

/// All variables of this process.
[[nodiscard]] Environment current_environment();

/// The variable's value, or "" where it is not set.
[[nodiscard]] std::string value_of(const Environment& environment, const std::string& name);

/// The variable that stands for an option: "LOCKSTEP_MAX_RESTARTS" for "max-restarts".
[[nodiscard]] std::string variable_of_option(const std::string& name);

/// The rank that a launcher (Open MPI, PMIx, Slurm) gave this process; 0 where there is none. Known before MPI is up:
/// for what only one process of a world should print.
[[nodiscard]] int launcher_rank(const Environment& environment);

}  // namespace lockstep
