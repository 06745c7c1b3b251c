// A model that is compiled by a backend and also run by the double-precision reference. Both take the same steps on the
// same random examples, and all results are compared after every step.
#pragma once

#include "backend/backend.hpp"
#include "cluster/world/world.hpp"
#include "collective/communicator.hpp"
#include "plan/plan.hpp"
#include "plan/step.hpp"
#include "support/convolutions.hpp"
#include "support/examples.hpp"
#include "support/reference.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::testing {

struct CheckedModelOptions {
  Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  Optimizer optimizer = SGD({.learning_rate = 0.1});
  std::size_t capacity = 8;
  int threads = 1;
  std::uint64_t seed = 1;
  Pixels pixels = Pixels::floats;
  PlanOptions plan = {};
  bool mixed_bfloat16 = false;
  bool weighted = false;              ///< gives the examples weights
  std::size_t cache_bytes = 0;        ///< overrides the backend's cache size; a small one leads to several microbatches
  std::optional<Layout> layout = {};  ///< of images wherever possible; none: the fastest
  Convolutions convolutions = convolutions_under_test();
  double tolerance = 5e-5;  ///< relative error of a tensor in the L2 norm
};

/// A model in one line, for messages: "Input(7, 6, 2) Conv2D(5, 4, 5)".
[[nodiscard]] std::string describe(const Architecture& model);

/// The CPU backend, or the GPU backend if LOCKSTEP_TEST_DEVICE=cuda, so that the same cases test both. Creating a GPU
/// backend is slow, so it is shared as long as anybody holds it.
[[nodiscard]] std::shared_ptr<Backend> make_backend_under_test(int threads = 1, bool deterministic = true,
                                                               std::optional<Layout> layout = {},
                                                               Convolutions convolutions = convolutions_under_test());

/// Whether the backend under test is a GPU, and the error is its refusal of a layer by name.
[[nodiscard]] bool is_refusal_of_gpus(const std::exception& error);

class CheckedModel {
 public:
  explicit CheckedModel(const Architecture& model, const CheckedModelOptions& options = {});

  /// One step on replicas of these sizes, some of which may be 0. Checks loss, correct predictions, all gradients and
  /// the updated weights. Both then continue from the same weights.
  void train(const std::vector<std::int64_t>& replicas);

  /// Checks outputs, loss and correct predictions of `count` examples in inference.
  void infer(std::size_t count);

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] Executable& executable() noexcept { return *executable_; }
  [[nodiscard]] const Arenas& arenas() const noexcept { return arenas_; }
  [[nodiscard]] reference::ReferenceModel& reference() noexcept { return reference_; }

  /// Reads a parameter from an arena, in Keras' layout.
  [[nodiscard]] std::vector<float> read(std::size_t parameter, std::span<const float> arena) const;

  /// Through the executable, as a device's arena is beyond the host's reach.
  void write_initial_slots();

  /// Rounds the reference's weights to floats and copies them to the backend.
  void share_weights();

 private:
  StepContext draw(std::size_t count);
  void compare_gradients(const reference::Values& inputs, const reference::Values& targets,
                         const std::vector<std::int64_t>& replicas);
  [[nodiscard]] std::vector<double> sensitivity(const reference::Values& inputs, const reference::Values& targets,
                                                const std::vector<std::int64_t>& replicas);
  void compare_sums(std::span<const float> arena, const reference::Sums& expected, std::size_t count) const;

  CheckedModelOptions options_;
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
  std::vector<InputPointer> inputs_;
  TargetPointer target_;
  std::vector<std::uint32_t> drawn_;
  std::vector<float> weights_;
  std::vector<Range> rows_;
};

}  // namespace lockstep::testing
