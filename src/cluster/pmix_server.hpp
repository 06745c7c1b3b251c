// The PMIx server of one generation: what makes processes that Lockstep's launchers start one MPI world, without
// mpirun, ssh or a daemon. MPI_Init of each rank asks it who is in the world, and hands its addresses in at a fence
// that the launchers carry between their servers.
//
// A process of its own, and a new one for each generation: a server that outlived killed ranks stuck after a few dozen
// of them (PMIx 4.2.2). It is the only part of Lockstep that links PMIx, and never touches MPI.
#pragma once

namespace lockstep {

/// The whole life of that process: speaks as pmix_messages.hpp tells on a connected socket until its end of file, then
/// deletes the directories of its job. For a process without threads, which then ends without running exit handlers.
[[noreturn]] void run_pmix_server(int control);

}  // namespace lockstep
