// Variables LOCKSTEP_... that are not options of a training program: what else reads or sets them.
#pragma once

#include <string_view>

namespace lockstep {

/// Whether something besides a program's options may read the variable: `lockstep launch`, Lockstep's own processes,
/// its scripts and tests; or Kubernetes sets it for a Service whose name begins with "lockstep".
/// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
[[nodiscard]] bool has_other_reader(std::string_view variable, std::string_view value);

/// An option of one of Lockstep's programs. Others leave it alone: one environment serves several commands.
[[nodiscard]] bool is_of_another_program(std::string_view variable);

}  // namespace lockstep
