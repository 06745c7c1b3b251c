// The operations of one training step, run one at a time as Lockstep runs them, and the bare kernels that do the same
// work. One thread.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"
#include "collective/single_rank_communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "micro/bare.hpp"
#include "plan/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

/// A model, local batch and precision, named as in "keras_mnist/64/bf16".
struct Job {
  std::string model;            ///< one of the two programs', or the path of a .keras file
  std::size_t local_batch = 0;  ///< examples per step on this rank
  bool bfloat16 = false;
  int ranks = 1;  ///< on the host; each updates its shard of the weights

  [[nodiscard]] std::string name() const;
};

/// The job of this name. Throws UsageError.
[[nodiscard]] Job job_named(const std::string& name);

/// Both programs' models, local batches of 64 and 128, float32 and, if the CPU has it, bfloat16.
[[nodiscard]] std::vector<Job> all_jobs();

/// A forward or backward operation of one layer in all its microbatches, or the update of all weights (no operations).
struct Row {
  std::string name;                     ///< "dense_backward/dense_1", "update"
  std::vector<std::size_t> operations;  ///< indices in Plan::compute
};

[[nodiscard]] std::vector<Row> rows_of(const Plan& plan);

/// The job's plan, as the CPU backend compiles it.
[[nodiscard]] Plan plan_of(const Job& job);

class StepWork {
 public:
  explicit StepWork(Job job);

  [[nodiscard]] const Job& job() const noexcept { return job_; }
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }

  /// Runs a whole step, which fills all tensors with realistic values. An operation that runs again and again without
  /// the others may shrink its gradients to denormal numbers, which are slow.
  void run_step();

  /// Runs the row's operations once, as in one step of Lockstep.
  void run(const Row& row);

  /// The name of oneDNN's implementation, such as "brgemm:avx512_core".
  [[nodiscard]] std::string implementation(const Row& row) const;

  /// The bare kernels of the row; empty if there are none.
  [[nodiscard]] std::vector<BareKernel> bare(const Row& row) const;

 private:
  /// Makes random examples, and a batch of them. Returns how many there are.
  std::size_t fill_data();

  Job job_;
  Optimizer optimizer_;
  std::unique_ptr<Backend> backend_;
  Plan plan_;
  SingleRankCommunicator communicator_;
  Arenas arenas_;
  std::unique_ptr<Executable> executable_;
  onednn::Context dnnl_;
  AlignedBuffer other_gradients_;     ///< stand in for another rank's gradients
  std::vector<std::uint8_t> pixels_;  ///< of the programs' models
  std::vector<float> values_;         ///< of a file's model
  InputPointer input_pointer_;
  TargetPointer classes_pointer_;
  std::vector<std::int32_t> classes_;
  std::vector<std::uint32_t> examples_;
  Range replica_;
  StepContext context_;
  std::uint64_t iteration_ = 0;
};

/// The fastest algorithm of each part, found by running all of them.
[[nodiscard]] std::vector<BareKernel> fastest(std::vector<BareKernel> kernels);
[[nodiscard]] std::string describe(const std::vector<BareKernel>& kernels);

}  // namespace lockstep::bench
