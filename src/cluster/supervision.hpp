// How patient launchers are with each other. One set for coordinator and members; tests bring shorter ones.
#pragma once

namespace lockstep {

/// All in seconds, but for `max_restarts`.
struct Supervision {
  double rendezvous_timeout = 600;  ///< for all to be there, at the start and after each loss
  int max_restarts = 10;            ///< that follow each other without progress
  int min_workers = 0;              ///< that may go on without the others; 0: all are needed
  double rejoin_timeout = 60;       ///< for the others to come back, where that is so
  double heartbeat = 1;
  double silence = 4;    ///< of a peer: then it is lost
  double report = 10;    ///< between two lines about who is missing
  double busy = 600;     ///< for a rank to give a sign of life where it does no steps, or its first ones; 0: any time
  double stuck = 4;      ///< without a step, where steps usually take less than a third of it; 0: as long as it takes
  double leave = 25;     ///< for all to save, when a worker was told to go
  double farewell = 30;  ///< for absent members to come and hear that all went well
  double farewell_of_failure = 5;  ///< or that it did not, which they find out by themselves
  double stranger = 5;             ///< for a connection to say who it is
  double connect_retry = 1;        ///< at most, between two attempts
};

}  // namespace lockstep
