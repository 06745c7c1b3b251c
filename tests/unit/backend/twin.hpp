// A model twice: compiled by a backend, and in the double-precision reference. Both take the same steps on the
// same random examples, and after every step all they computed is compared.
#pragma once

#include "backend/backend.hpp"
#include "cluster/world.hpp"
#include "collective/communicator.hpp"
#include "plan/plan.hpp"
#include "plan/step.hpp"
#include "support/examples.hpp"
#include "support/reference.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::testing {

struct TwinOptions {
  Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  Optimizer optimizer = SGD({.learning_rate = 0.1});
  std::size_t capacity = 8;
  int threads = 1;
  std::uint64_t seed = 1;
  Pixels pixels = Pixels::floats;
  PlanOptions plan = {};
  bool mixed_bfloat16 = false;
  std::size_t cache_bytes = 0;  ///< instead of the backend's own: a small one cuts the trunk into slices
  double tolerance = 5e-5;      ///< of a tensor in the L2 norm, relative
};

/// "Input(7, 6, 2) Conv2D(5, 4, 5)": a model in a line, for messages.
[[nodiscard]] std::string describe(const Sequential& model);

/// The CPU; or the GPU where LOCKSTEP_TEST_DEVICE=cuda, so that the same cases try both. Making a GPU's takes long, so
/// one is given to all who ask while somebody holds it.
[[nodiscard]] std::shared_ptr<Backend> make_backend_under_test(int threads = 1, bool deterministic = true);

class Twin {
 public:
  explicit Twin(const Sequential& model, const TwinOptions& options = {});

  /// One step on slices of these sizes, one a replica; some may be 0. Checks loss and hits, every gradient, and that
  /// the weights moved alike; then both go on from the same weights.
  void train(const std::vector<std::int64_t>& replicas);

  /// Checks outputs, loss and hits of `count` examples in inference.
  void infer(std::size_t count);

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] Executable& executable() noexcept { return *executable_; }
  [[nodiscard]] const Arenas& arenas() const noexcept { return arenas_; }
  [[nodiscard]] reference::ReferenceModel& reference() noexcept { return reference_; }

  /// A parameter out of an arena, in Keras' layout.
  [[nodiscard]] std::vector<float> read(std::size_t parameter, std::span<const float> arena) const;

  /// Gives the reference's weights, rounded to floats, to both.
  void share_weights();

 private:
  StepContext draw(std::size_t count);
  void compare_gradients(const reference::Values& inputs, const reference::Values& targets,
                         const std::vector<std::int64_t>& replicas);
  [[nodiscard]] std::vector<double> sensitivity(const reference::Values& inputs, const reference::Values& targets,
                                                const std::vector<std::int64_t>& replicas);
  void compare_sums(std::span<const float> arena, const reference::Sums& expected, std::size_t count) const;

  TwinOptions options_;
  Examples examples_;
  reference::ReferenceModel reference_;
  std::shared_ptr<Backend> backend_;
  Plan plan_;
  World world_;
  std::unique_ptr<Communicator> communicator_;
  Arenas arenas_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Step> step_;
  std::uint64_t steps_ = 0;
  std::uint64_t draws_ = 0;
  std::vector<std::uint32_t> drawn_;
  std::vector<ReplicaRows> rows_;
};

}  // namespace lockstep::testing
