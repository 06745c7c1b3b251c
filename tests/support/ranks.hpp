// What tests under mpirun share: whether all ranks have the same, and runs that die on all of them at once.
#pragma once

#include "cluster/world.hpp"
#include "collective/make_communicator.hpp"
#include "support/examples.hpp"

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
[[nodiscard]] inline std::uint64_t digest_of(const std::vector<Variable>& weights) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  for (const Variable& variable : weights) {
    for (const float value : variable.values) digest = (digest ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001B3U;
  }
  return digest;
}

/// True if all ranks give the same text.
[[nodiscard]] inline bool equal_everywhere(const std::string& text) {
  const World world;
  const auto communicator = make_communicator(world, Transport::automatic);
  const std::vector<std::string> texts = communicator->all_gather(text);
  return std::all_of(texts.begin(), texts.end(), [&](const std::string& other) { return other == text; });
}

/// True if all ranks have these weights, bit for bit.
[[nodiscard]] inline bool equal_everywhere(const std::vector<Variable>& weights) {
  return equal_everywhere(std::to_string(digest_of(weights)));
}

[[nodiscard]] inline bool equal(const std::vector<Variable>& a, const std::vector<Variable>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Variable& x, const Variable& y) {
    return x.name == y.name && x.shape == y.shape && x.values == y.values;
  });
}

/// What ends a run on all ranks at once.
struct Death {};

class DieAt : public Callback {
 public:
  explicit DieAt(int steps) : steps_(steps) {}
  void on_train_batch_end(Model& /*model*/, std::int64_t /*batch*/, const StepMetrics& /*so_far*/) override {
    if (++seen_ == steps_) throw Death();
  }

 private:
  int steps_;
  int seen_ = 0;
};

inline constexpr int never = 1 << 30;  ///< for DieAt

/// No run goes on from a backup of one before.
inline void remove_backups(const Options& options) {
  const World world;
  const auto communicator = make_communicator(world, Transport::automatic);
  communicator->barrier();  // a backup of the last training may be on its way out
  if (world.is_chief()) std::filesystem::remove_all(options.model_dir / "backup");
  communicator->barrier();
}

/// Weights after four epochs of a run that keeps backups; none where it died before.
[[nodiscard]] inline std::vector<Variable> train_with_backups(const Sequential& architecture,
                                                              const Optimizer& optimizer, const Options& options,
                                                              int dies_at) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const Examples examples = make_examples(architecture, loss, 40, 3);
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(architecture);
  model.compile({.optimizer = optimizer, .loss = loss, .metrics = {accuracy}});
  const BackupAndRestore backups(options.model_dir / "backup", {.save_freq = 3});
  model.fit(examples.data, {.epochs = 4, .callbacks = {backups, DieAt(dies_at)}});
  return model.weights();
}

}  // namespace lockstep::testing
