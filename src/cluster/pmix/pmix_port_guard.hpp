// Keeps unauthenticated peers off the loopback port of the PMIx server. PMIx reads the greeting of whoever connects
// with a blocking recv() on its only thread, so a silent connection would block every start for as long as it is held.
#pragma once

namespace lockstep {

/// From now on this process accepts TCP connections only from processes of its own user on this machine.
void accept_only_own_user();

/// Drops all further connections to this process, because everybody who may connect has.
void close_own_ports() noexcept;

}  // namespace lockstep
