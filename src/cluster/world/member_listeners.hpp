// Keeps unauthenticated peers off the ports on which MPI listens. Open MPI listens on all addresses and reads the
// greeting of whoever connects with a blocking recv(), so one byte would block a rank for as long as its sender holds
// the connection. The launcher lists the addresses of the job's hosts in LOCKSTEP_MEMBER_ADDRESSES, and the kernel
// drops packets from all others.
#pragma once

#include <string>

namespace lockstep {

/// Addresses separated by commas; unset in worlds that `lockstep launch` did not form, and on a single host.
inline constexpr const char* member_addresses_variable = "LOCKSTEP_MEMBER_ADDRESSES";

/// Filters the listening sockets that listen() did not filter, because another library defines it. Call it after
/// MPI_Init. Logs a warning if the kernel refuses filters.
void filter_remaining_listeners();

}  // namespace lockstep
