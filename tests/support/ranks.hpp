// Helpers of tests under mpirun: comparisons between ranks, and runs that are killed on all ranks at once.
#pragma once

#include "cluster/world/world.hpp"
#include "collective/make_communicator.hpp"
#include "core/digest.hpp"
#include "support/examples.hpp"

#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/callbacks.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::testing {

/// FNV-1a over the bits of the values.
[[nodiscard]] inline std::uint64_t digest_of(const std::vector<NamedTensor>& weights) {
  std::uint64_t digest = fnv1a_basis;
  for (const NamedTensor& variable : weights) {
    for (const float value : variable.values) digest = fnv1a(digest, std::bit_cast<std::uint32_t>(value));
  }
  return digest;
}

/// True if all ranks pass the same text.
[[nodiscard]] inline bool equal_on_all_ranks(const std::string& text) {
  const World world;
  const auto communicator = make_communicator(world);
  const std::vector<std::string> texts = communicator->all_gather(text);
  return std::all_of(texts.begin(), texts.end(), [&](const std::string& other) { return other == text; });
}

/// True if all ranks pass bit-identical weights.
[[nodiscard]] inline bool equal_on_all_ranks(const std::vector<NamedTensor>& weights) {
  return equal_on_all_ranks(std::to_string(digest_of(weights)));
}

[[nodiscard]] inline bool equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const NamedTensor& x, const NamedTensor& y) {
    return x.name == y.name && x.shape == y.shape && x.values == y.values;
  });
}

/// Thrown to end a run on all ranks at once.
struct SimulatedDeath {};

class KillAtStep : public Callback {
 public:
  explicit KillAtStep(int steps) : steps_(steps) {}
  void on_train_batch_end(Model& /*model*/, std::int64_t /*batch*/, const MetricSums& /*so_far*/) override {
    if (++seen_ == steps_) throw SimulatedDeath();
  }

 private:
  int steps_;
  int seen_ = 0;
};

inline constexpr int never = 1 << 30;  ///< the step of a KillAtStep that does nothing

/// Removes backups, so that a run does not resume from an earlier one.
inline void remove_backups(const Options& options) {
  const World world;
  const auto communicator = make_communicator(world);
  communicator->barrier();  // the chief may still be writing or removing backups of the previous training
  if (world.is_chief()) std::filesystem::remove_all(options.model_dir / "backup");
  communicator->barrier();
}

/// Weights after four epochs of a run with backups; empty if the run was killed.
[[nodiscard]] inline std::vector<NamedTensor> train_with_backups(const Sequential& architecture,
                                                                 const Optimizer& optimizer, const Options& options,
                                                                 int killed_at_step) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const Examples examples = make_examples(architecture, loss, 40, 3);
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(architecture);
  model.compile({.optimizer = optimizer, .loss = loss, .metrics = {accuracy}});
  const BackupAndRestore backups(options.model_dir / "backup", {.save_freq = 3});
  model.fit(examples.data, {.epochs = 4, .callbacks = {backups, KillAtStep(killed_at_step)}});
  return model.weights();
}

}  // namespace lockstep::testing
