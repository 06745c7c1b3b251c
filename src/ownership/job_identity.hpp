// Which job a process works for, as its launcher and the environment tell.
#pragma once

#include "core/environment.hpp"
#include "ownership/directory_record.hpp"

namespace lockstep {

/// The job is LOCKSTEP_JOB_ID, else the launcher's run. Without a launcher each process is a job of its own, whose
/// command is unknown here. Throws UsageError for an id that no record can hold.
[[nodiscard]] DirectoryOwner identify_job(const Environment& environment);

}  // namespace lockstep
