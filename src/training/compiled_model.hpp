// What compiling makes of a model on this rank: how it is divided, its plan, its memory, and what runs it.
#pragma once

#include "backend/backend.hpp"
#include "checkpoint/saved_model.hpp"
#include "collective/communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "plan/division.hpp"
#include "plan/division_table.hpp"
#include "plan/exchange_memory.hpp"
#include "plan/plan.hpp"
#include "plan/step.hpp"
#include "training/batch_feed.hpp"
#include "training/choose_division.hpp"
#include "training/runtime.hpp"
#include "training/shards.hpp"
#include "training/snapshot.hpp"

#include <lockstep/training/model.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// In the order in which they are looked at.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// In the order in which things depend on each other.
struct CompiledModel {
  /// Collective; weights have no values yet. Runtime and architecture must outlive it. `kept_division`: the code of a
  /// job's division that goes on here, empty where it shall be chosen.
  CompiledModel(Runtime& runtime, const Sequential& whole, const CompileOptions& asked, std::size_t replicas,
                const std::string& kept_division);
  CompiledModel(const CompiledModel&) = delete;
  CompiledModel& operator=(const CompiledModel&) = delete;

  /// What all workers, and all runs of a job, must have in common of the model, by name.
  [[nodiscard]] NamedTexts identity() const;

  /// Collective. All values, in the architecture's order and in Keras' layout.
  [[nodiscard]] std::vector<std::vector<float>> weights() const;
  void write_weights(std::span<const Variable> variables);
  void write_slots(const SavedTraining& training);

  const Sequential& architecture;
  CompileOptions options;
  std::string description;  ///< of the options as they were compiled: callbacks change the learning rate
  std::unique_ptr<BatchFeed> feed;
  ExchangeMemory exchanges;  ///< outlives the communicator
  std::unique_ptr<Communicator> communicator;
  std::optional<FeatureDivision> division;  ///< where layers are divided by features
  DivisionChoice choice;
  std::vector<LayerDivision> layers;  ///< how each layer is divided
  Plan plan;
  Arenas arenas;
  AlignedBuffer own_memory;  ///< of a divided model: what only this rank holds
  Arenas own;
  std::optional<Shards> shards;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Step> step;
  std::unique_ptr<Snapshot> snapshot;

 private:
  void make_plan_for(Runtime& runtime, std::size_t replicas, const std::string& kept_division);
  void allocate(bool mixed_precision);
  /// Writes a variable, or one of its slots, as a rank of a divided model holds it.
  void write_variable(std::size_t variable, std::size_t array, std::span<const float> values);
};

}  // namespace lockstep
