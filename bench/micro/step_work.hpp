// One training step of a model, taken apart: its operations as Lockstep runs them, each beside the bare kernels that do
// the same work. One thread.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"
#include "collective/local_communicator.hpp"
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

/// What is trained: "keras_mnist/64/bf16".
struct Job {
  std::string model;
  std::size_t slice = 0;  ///< examples a step on this rank
  bool bfloat16 = false;
  int ranks = 1;  ///< on the host, each updating its share of the weights

  [[nodiscard]] std::string name() const;
};

/// Both models, slices of 64 and 128, float32 and, where the CPU has it, bfloat16.
[[nodiscard]] std::vector<Job> all_jobs();

/// A forward or backward operation of one layer, all its chunks; or the update of all weights (no operations).
struct Row {
  std::string name;  ///< "dense_backward/dense_1", "update"
  std::vector<Operation> operations;
};

[[nodiscard]] std::vector<Row> rows_of(const Plan& plan);

/// Lowered, laid out and cut as the CPU backend does it.
[[nodiscard]] Plan plan_of(const Job& job);

class StepWork {
 public:
  explicit StepWork(Job job);

  [[nodiscard]] const Job& job() const noexcept { return job_; }
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }

  /// One step's worth of the row, as Lockstep does it.
  void run(const Row& row);

  /// What implements it: "brgemm:avx512_core".
  [[nodiscard]] std::string implementation(const Row& row) const;

  /// The bare kernels of the row; empty where there are none.
  [[nodiscard]] std::vector<BareKernel> bare(const Row& row) const;

 private:
  Job job_;
  std::unique_ptr<Backend> backend_;
  Plan plan_;
  LocalCommunicator communicator_;
  Arenas arenas_;
  std::unique_ptr<Executable> executable_;
  onednn::Context dnnl_;
  AlignedBuffer other_gradients_;  ///< another rank's
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int32_t> classes_;
  std::vector<std::uint32_t> examples_;
  ReplicaRows replica_;
  StepContext context_;
  std::uint64_t iteration_ = 0;
};

/// The fastest way of each part, found by running them; and its name: "weights direct jit:avx512_core, data ...".
[[nodiscard]] std::vector<BareKernel> fastest(std::vector<BareKernel> kernels);
[[nodiscard]] std::string describe(const std::vector<BareKernel>& kernels);

}  // namespace lockstep::bench
