// Which worker computes what, where a step is not one of all workers: with asynchronous updates, and where an update
// adds up the first M of n gradients. In other jobs every worker takes part in every step and needs nobody to tell it.
//
//   ticket        one worker's work: a slice of a step's batch. Server 0 hands tickets out.
//                   asynchronous   all slices of all steps in order, each to the worker that asks next. A chief that
//                                  coordinates gets one without a slice for each step that has begun
//                   first M of n   to each worker its own slice of the step that the servers are about to make
//   round         a range of steps of an epoch. At its end all workers meet and no gradient is on its way, so backups,
//                 validation and callbacks see weights that nobody updates, and a position in whole steps. A round ends
//                 with the epoch, or where a backup is due.
//   contributors  the workers whose gradients an update of a server adds up (ServerCommunicator): all n, M, or one.
//
// With a bound of the staleness, workers wait for their tickets: no gradient is dropped or computed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "collective/parameter_server/update_policy.hpp"
#include "core/range.hpp"

namespace lockstep {

class TicketQueue {
 public:
  TicketQueue(const UpdatePolicy& policy, std::size_t workers);

  /// Begins a round. No worker may hold a ticket.
  void open(const Range& steps);
  /// Ends the round after the steps that have begun.
  void close();
  /// A worker is lost: another one gets its ticket. Only if asynchronous.
  void forget(std::size_t worker);
  /// A worker wants a ticket. Asynchronous, the updates by its last one have been made.
  void ask(std::size_t worker);
  /// The servers have made the step for which the tickets were.
  void end_step();

  struct Grant {
    std::size_t worker = 0;
    std::uint64_t step = 0;
    std::size_t slice = 0;  ///< of a chief that coordinates: the number of slices
    bool is_end = false;    ///< there are no more tickets; `step` is the end of the round
  };
  /// The next answer to a worker that has asked; none if all must wait.
  [[nodiscard]] std::optional<Grant> next_grant();

 private:
  /// A ticket that a worker holds.
  struct Held {
    std::uint64_t ticket = 0;  ///< asynchronous: which one; else: of which step
    std::uint64_t number = 0;  ///< of those that were handed out before it
    std::size_t before = 0;    ///< of these, those that others held then
  };

  [[nodiscard]] std::optional<Grant> grant_asynchronous(std::size_t worker);
  [[nodiscard]] std::optional<Grant> grant_coordinator();
  [[nodiscard]] std::optional<Grant> grant_synchronous(std::size_t worker);
  [[nodiscard]] bool are_all_handed_out() const { return next_ >= end_ * slices_ && returned_.empty(); }
  [[nodiscard]] bool exceeds_staleness() const;

  UpdatePolicy policy_;
  std::size_t slices_;                     ///< of a step
  std::uint64_t end_ = 0;                  ///< of the round, in steps
  std::uint64_t next_ = 0;                 ///< asynchronous: ticket; else: the step that the servers are about to make
  std::uint64_t handed_out_ = 0;           ///< tickets
  std::deque<std::uint64_t> returned_;     ///< tickets of lost workers
  std::deque<std::size_t> waiting_;        ///< workers that have asked, in order
  std::uint64_t told_ = 0;                 ///< steps that the coordinator knows to have begun
  std::vector<std::optional<Held>> held_;  ///< by worker
};

}  // namespace lockstep
