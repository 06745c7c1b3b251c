// One model on one rank: its architecture and weights, before and after compile.
#pragma once

#include "core/digest.hpp"
#include "session/compiled_model.hpp"
#include "session/read_on_chief.hpp"
#include "session/run_context.hpp"

#include <lockstep/training/model.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// All functions that may change or gather weights are collective.
class RankModel {
 public:
  /// Initializes the weights, or reads them from --initial-weights.
  RankModel(RunContext& run_context, Architecture architecture);

  /// Keeps the weights and resets the optimizer.
  void compile(const CompileOptions& options);

  /// Throws UsageError before compile.
  [[nodiscard]] CompiledModel& compiled() const;
  [[nodiscard]] std::optional<CompileOptions> compile_options() const;
  /// How many times the model's parameters were laid out.
  [[nodiscard]] int compilation() const noexcept { return compilation_; }
  [[nodiscard]] Optimizer& optimizer() const { return compiled().options.optimizer; }

  /// See BatchFeed::validate. Collective.
  void validate(const Dataset& data) const { compiled().feed->validate(data, compiled().outputs); }

  /// Collective. Sets CompiledModel::training to the step for this batch. Returns whether it changed.
  bool prepare_to_train(const Batch& batch);

  [[nodiscard]] std::vector<NamedTensor> weights() const;
  /// Throws UsageError unless the number of weights and all shapes match the model.
  void set_weights(const std::vector<NamedTensor>& weights);

  /// Loads a file's weights. Their shapes must match the model.
  void load_weights(const ModelData& saved);

  /// The digest of what training would start from now: the weights, the iteration, and the optimizer state of the files
  /// that were loaded. Collective.
  [[nodiscard]] std::string origin() const;
  /// For a file that was loaded as the model's beginning.
  void add_to_origin(const LoadedModel& file);
  /// The paths of those files.
  [[nodiscard]] const std::string& origin_files() const noexcept { return origin_files_; }

  /// Loads a file's weights and, if it has the same kind of optimizer with the same slots, slots and iteration. Throws
  /// DataError if those slots hold NaN or infinity.
  void load(const LoadedModel& file);

  /// Whether the model has statistics that training updates: BatchNormalization's.
  [[nodiscard]] bool has_moving_averages() const;

  /// Replicas of all ranks: of --batch-norm-replicas, or of the backup that was restored.
  [[nodiscard]] std::size_t batch_norm_replicas() const noexcept { return batch_norm_replicas_; }

  /// Uses the replicas that a backup recorded and, with --parallelism auto, the sharding of its provenance() ("":
  /// calibrate), so that an interrupted run ends with the bits of an uninterrupted one. Compiles again if either
  /// changes.
  void restore_parallelism(int batch_norm_replicas, const std::string& sharding);

  /// Whether each rank computes the whole batch and holds some weights alone, as shards or replicated. Snapshots,
  /// weights() and save() are then collective.
  [[nodiscard]] bool is_tensor_parallel() const { return compiled().sharding.has_value(); }

  /// How the layers are sharded, for the model's summary; empty if there was no choice.
  [[nodiscard]] std::string sharding_summary() const;

  /// The kernels of a training step with their times, measured now on this rank: see describe_kernels.
  [[nodiscard]] std::string kernels_summary() const;

  /// Describes, for a person, a sharding that provenance() recorded over `workers` workers.
  [[nodiscard]] std::string describe_sharding(const std::string& sharding, const std::string& workers) const;

  /// What results depend on, bit for bit, besides identity(): plan, device, libraries, number of workers.
  [[nodiscard]] std::map<std::string, std::string> provenance() const;

  [[nodiscard]] RunContext& run_context() const noexcept { return run_context_; }
  [[nodiscard]] const Architecture& architecture() const noexcept { return architecture_; }

 private:
  /// "data", "replicated", or "tensor" and the code of the sharding.
  [[nodiscard]] std::string sharding_provenance() const;
  /// True if the number changes. Keeps the current one, with a warning, where there are more workers than replicas.
  bool adopt_batch_norm_replicas(std::size_t wanted);
  void load_arenas();

  RunContext& run_context_;
  Architecture architecture_;
  std::size_t batch_norm_replicas_;
  std::string restored_sharding_;    ///< code of the backup's sharding; empty: choose one
  std::vector<NamedTensor> values_;  ///< the weights until compile has written them to the arenas
  std::unique_ptr<CompiledModel> compiled_;
  int compilation_ = 0;
  Digest loaded_state_;  ///< of the optimizers in the files of the origin
  std::string origin_files_;
};

}  // namespace lockstep
