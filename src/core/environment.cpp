// See environment.hpp.
#include "core/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/parse_number.hpp"

namespace lockstep {

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

std::string variable_of_option(const std::string& name) {
  std::string variable = "LOCKSTEP_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return variable;
}

int launcher_rank(const Environment& environment) {
  // Open MPI comes first: in a Slurm allocation all processes of mpirun may inherit the batch script's SLURM_PROCID.
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const auto rank = parse_number<int>(value_of(environment, name));
    if (rank && *rank >= 0) return *rank;
  }
  return 0;
}

}  // namespace lockstep
