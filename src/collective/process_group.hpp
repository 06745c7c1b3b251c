// A world for programs whose threads are not ours, such as Python with JAX or TensorFlow. One thread, owned by the
// group, initializes MPI and makes every later call of it; callers hand it work and wait. Any thread may call the
// group, but all ranks must make the same calls in the same order.
//
// Every collective begins with a small all-reduced header in which each rank states what it is about to do, so ranks
// that disagree throw the same UsageError instead of hanging. One difference is allowed: while some ranks reduce
// gradients, ranks whose data has ended may be in join(). They contribute zeros until all ranks have joined.
//
// After an error the group is broken: every later call throws the same error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/gradient_reducer.hpp"
#include "collective/mpi_thread.hpp"
#include "core/stop_request.hpp"
#include "ownership/lock_keeper.hpp"

#include <lockstep/core/communication.hpp>

namespace lockstep {

/// What the ranks agreed on when a reduction began.
struct StepAgreement {
  double weight = 0;     ///< sum of the ranks' weights
  int contributing = 0;  ///< ranks that have a batch
};

/// How join() ended.
struct JoinResult {
  std::uint64_t steps = 0;  ///< the most steps to which a rank contributed since the last join
  int source = 0;           ///< the first rank that contributed to so many
  bool is_uneven = false;   ///< some rank contributed to fewer, so its weights are behind those of `source`
};

struct ProcessGroupOptions {
  double timeout = 600;                           ///< as in CommunicatorOptions
  std::function<void()> while_caller_waits = {};  ///< as in MpiThread
};

class ProcessGroup {
 public:
  /// Collective. Waits until the world is up.
  explicit ProcessGroup(const ProcessGroupOptions& options = {});
  /// Without close(), leaves the world as it is: the process is expected to end.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] const std::vector<int>& host_of_rank() const noexcept { return host_of_rank_; }
  [[nodiscard]] const std::string& describe() const noexcept { return description_; }

  /// Collective: makes a reducer of gradients with these numbers of elements; returns its number. A bucket is full from
  /// `bucket_elements` on. Every step ends with `sparse` calls of gather_sparse().
  [[nodiscard]] std::size_t make_reducer(const std::vector<std::size_t>& sizes, std::size_t bucket_elements,
                                         GradientCompression compression, std::size_t sparse);

  /// Collective: averages gradients, each rank's with its weight. A rank without a batch has the weight 0, and what it
  /// passes is ignored. `gradients` and `averages` have one array for each of the reducer's sizes, and may be the same.
  StepAgreement reduce(std::size_t reducer, std::span<const float* const> gradients, std::span<float* const> averages,
                       double weight);

  /// reduce() in parts, so that it overlaps with the computation of gradients. Copies one gradient, whose bucket starts
  /// once it and all buckets before it are complete. Does not wait for other ranks. All gradients of a step pass the
  /// same weight. Throws UsageError for a gradient that this step already has.
  void contribute(std::size_t reducer, std::size_t gradient, const float* values, double weight);
  /// True if this step has the gradient.
  [[nodiscard]] bool has_contributed(std::size_t reducer, std::size_t gradient) const;
  /// Completes the step once all gradients were contributed.
  StepAgreement finish(std::size_t reducer, std::span<float* const> averages);

  /// Collective, after finish() or reduce(): all ranks' sparse gradients of the step, in rank order; empty ones of
  /// ranks without a batch.
  [[nodiscard]] std::vector<std::string> gather_sparse(std::size_t reducer, std::string bytes);

  /// Collective: this rank's data has ended.
  JoinResult join();

  /// Collective: sums an array over all ranks, in rank order.
  void all_reduce_sum(std::span<float> values);
  void all_reduce_sum(std::span<double> values);
  /// Collective: the root's bytes, on all ranks. What other ranks pass is ignored.
  [[nodiscard]] std::string broadcast(std::string bytes, int root);
  /// Collective: all ranks' bytes, in rank order.
  [[nodiscard]] std::vector<std::string> all_gather(std::string bytes);
  void barrier();

  /// The most urgent request that a launcher sent to any rank, as of the last reduction: equal on all ranks.
  [[nodiscard]] StopRequest request() const noexcept { return request_; }
  /// Tells the launcher where the job stands: completed steps across restarts, completed epochs, and examples since the
  /// last report.
  void report(std::uint64_t step, std::uint64_t epoch, double examples);

  /// The launcher as the keeper of locks, until close(); see LauncherConnection.
  [[nodiscard]] LockKeeper lock_keeper() const;

  /// Collective: leaves the world when all ranks have called it.
  void close();
  /// Tells the launcher, if there is one, why this process ends.
  static void report_error(const std::string& message) noexcept;
  /// Tells the other ranks that this one failed, if they call a collective within a second.
  void fail(const std::string& message) noexcept;

 private:
  struct Rank;  ///< everything that calls MPI
  struct Step;  ///< what a caller has contributed to a step so far

  [[nodiscard]] Step& step_of(std::size_t reducer) const;

  int rank_ = 0;
  std::vector<int> host_of_rank_;
  std::string description_;
  StopRequest request_ = StopRequest::none;
  std::vector<std::unique_ptr<Step>> steps_;  ///< by reducer
  std::shared_ptr<Rank> state_;               ///< used by tasks of thread_, and by others between them
  MpiThread thread_;
};

}  // namespace lockstep
