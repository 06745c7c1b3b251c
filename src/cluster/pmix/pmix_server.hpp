// The PMIx server of one generation, which makes the processes that the launchers start one MPI world, without mpirun,
// ssh or a daemon. MPI_Init of each rank queries it for the world and contributes the rank's addresses at a fence,
// which the launchers carry between their servers.
//
// Each generation has a new server process, because a server that outlives killed ranks hangs after a few dozen of them
// (PMIx 4.2.2). It is the only part of Lockstep that links PMIx, and it does not use MPI.
#pragma once

namespace lockstep {

/// Runs the server: exchanges the messages of pmix_messages.hpp on the connected socket `control` until end of file,
/// deletes the directories of the job, and ends the process without running exit handlers. The process must have no
/// threads.
[[noreturn]] void run_pmix_server(int control);

}  // namespace lockstep
