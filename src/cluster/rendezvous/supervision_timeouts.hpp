// The timeouts with which launchers supervise each other and their trainers. `lockstep launch` reads them from its
// options; tests pass shorter ones.
#pragma once

namespace lockstep {

/// Durations are in seconds.
struct SupervisionTimeouts {
  /// Time for all members to connect, at the start and after each loss.
  double rendezvous_timeout = 600;
  /// Consecutive restarts without progress before the job fails.
  int max_restarts = 10;
  /// Members that suffice to train without the others; 0: all are needed.
  int min_workers = 0;
  /// With min_workers: time for missing members to come back before training continues without them.
  double rejoin_timeout = 60;
  double heartbeat_interval = 1;
  /// Silence after which a peer counts as lost.
  double heartbeat_timeout = 4;
  /// Time between two log lines about missing members.
  double report_interval = 10;
  /// Time from the first rank's start until all ranks have formed the MPI world. Until the first step, also the silence
  /// of a rank for which others wait; doubles with each restart. 0: no limit.
  double start_timeout = 120;
  /// Duration of a start after which all ranks print their stacks.
  double stacks_after = 30;
  /// Silence after which a rank outside of steps, or in its first steps, counts as stalled; 0: never.
  double busy_timeout = 600;
  /// Time without a step after which a rank counts as stalled, unless steps usually take more than a third of it;
  /// 0: never.
  double stall_timeout = 4;
  /// Time for all ranks to save after a worker received SIGTERM.
  double leave_timeout = 25;
  /// Time for absent members to reconnect and receive the result of a job that succeeded.
  double goodbye_timeout = 30;
  /// The same after a failure. It is shorter, because members also notice a failure by themselves.
  double goodbye_timeout_after_failure = 5;
  /// Time for a new connection to authenticate.
  double handshake_timeout = 5;
  /// Maximum delay between two connection attempts.
  double max_reconnect_delay = 1;
};

}  // namespace lockstep
