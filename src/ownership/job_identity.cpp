// See job_identity.hpp.
#include "ownership/job_identity.hpp"

#include "core/digest.hpp"
#include "core/parse_number.hpp"
#include "core/process_identity.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep {

DirectoryOwner identify_job(const Environment& environment) {
  std::string job = value_of(environment, "LOCKSTEP_JOB_ID");
  const bool outlives_launchers = !job.empty();
  require_job_id(job);
  if (job.empty()) job = value_of(environment, "LOCKSTEP_LAUNCH_ID");
  if (job.empty()) job = to_hex(fnv1a(process_identity()));
  const auto generation = parse_number<std::uint64_t>(value_of(environment, "LOCKSTEP_GENERATION"));
  return {.job = std::move(job),
          .outlives_launchers = outlives_launchers,
          .command = value_of(environment, "LOCKSTEP_COMMAND"),
          .launch = value_of(environment, "LOCKSTEP_LAUNCH_ID"),
          .generation = generation.value_or(0)};
}

}  // namespace lockstep
