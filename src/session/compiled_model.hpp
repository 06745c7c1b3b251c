// A model compiled on this rank: sharding, arenas, and a compiled step for each batch size in use.
//
// A batch size determines microbatches, kernels and the memory of activations. Layouts and arenas are made for the
// default batch size, or for 65,536 examples if it is larger. All steps of a data-parallel model share them, and each
// step is compiled when its batch size first occurs. A tensor-parallel model all-reduces activations, which lie in the
// arenas. It has one step, and training with another batch size lays out the arenas again.
#pragma once

#include "backend/backend.hpp"
#include "checkpoint/model_data.hpp"
#include "collective/communicator.hpp"
#include "collective/parameter_server/server_communicator.hpp"
#include "collective/parameter_server/worker_communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "parallel/calibrate.hpp"
#include "parallel/sharding.hpp"
#include "parallel/sharding_table.hpp"
#include "parallel/shards.hpp"
#include "plan/all_to_all_memory.hpp"
#include "plan/plan.hpp"
#include "session/batch_feed.hpp"
#include "session/compiled_step.hpp"
#include "session/epoch_batches.hpp"
#include "session/output_metrics.hpp"
#include "session/run_context.hpp"

#include <lockstep/training/model.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Settings to compare, in order: a mismatch is reported for the first that differs.
using KeyValues = std::vector<std::pair<std::string, std::string>>;

struct CompiledModel {
  /// Collective. Leaves the weights unset. `context` and `model` must outlive the object.
  /// `restored_sharding`: the code of the sharding of the job that is resumed; empty to choose a sharding.
  CompiledModel(RunContext& context, const Architecture& model, const CompileOptions& compile_options,
                std::size_t batch_norm_replicas, const std::string& restored_sharding);
  ~CompiledModel();
  CompiledModel(const CompiledModel&) = delete;
  CompiledModel& operator=(const CompiledModel&) = delete;

  /// The model's properties that must be equal on all workers and in all runs of a job, by name.
  [[nodiscard]] KeyValues identity() const;

  /// Collective. The full weights, one array per variable, in the architecture's order and in Keras' layout.
  [[nodiscard]] std::vector<std::vector<float>> weights() const;
  /// Calls visitor(values) for each weight, in the order of weights() and without a copy of all. Collective.
  void visit_weights(const std::function<void(std::span<const float>)>& visitor) const;
  /// Collective.
  void set_weights(std::span<const NamedTensor> variables);

  /// Collective. Sets the optimizer's slots to their initial values.
  void write_initial_slots();

  /// Collective. `slots` in the order of slots_for().
  void write_slots(std::span<const NamedTensor> slots);

  /// Frees the device's copies of data sets.
  void release_data();

  /// Collective. If the optimizer keeps moving averages of the weights, replaces the weights by them, as Keras does at
  /// the end of fit().
  void use_averages();

  /// The batch size of the step that computes this batch, which may be shorter.
  [[nodiscard]] std::size_t batch_size_of(const Batch& batch) const;

  /// The step for global batches of this size. Compiles it the first time. Valid until the next call with another size.
  /// A tensor-parallel model has only one step, which takes batches of at most its own size.
  [[nodiscard]] CompiledStep& step_for(std::size_t batch_size);

  /// Collective. Lays out a tensor-parallel model for batches of this size. Keeps its values; replaces its step.
  void lay_out_again(std::size_t batch_size);

  /// Collective. Records the parallelism, so that the job's next generation need not measure again.
  void record_parallelism();

  /// On a parameter server: makes the step that all workers have begun.
  void serve_step();

  /// Waits until all weights are updated. Call it before reading them outside of a training step.
  void synchronize() const { steps.front()->step.synchronize(); }

  /// Gives the memory of all steps' tensors back to the system until the next pass, and with it the last outputs.
  void release_tensors() const {
    for (const auto& step : steps) step->executable->release_tensors();
  }

  /// Of the first step. All steps share its layouts of parameters.
  [[nodiscard]] const Plan& plan() const { return steps.front()->plan; }
  [[nodiscard]] Executable& executable() const { return *steps.front()->executable; }

  /// Runs forward passes and returns this rank's metric sums. `all_reduce` adds those of all ranks. The metrics of
  /// training steps in flight must have been taken.
  [[nodiscard]] MetricSums evaluate(const Batch& batch);
  /// The same of all batches of the first epoch.
  [[nodiscard]] MetricSums evaluate(const EpochBatches& batches);
  [[nodiscard]] MetricSums all_reduce(const MetricSums& local) const;

  /// By output, the values for all examples, row-major [size, output elements]. Each rank computes all of them, as many
  /// examples at once as it does of a global batch of this size.
  [[nodiscard]] std::vector<std::vector<float>> predict(const Dataset& data, std::size_t batch_size);

  /// Elements of the metrics parameter: what a step writes.
  [[nodiscard]] std::size_t num_metric_elements() const;

  RunContext& run_context;
  const Architecture& architecture;
  CompileOptions options;
  std::vector<OutputOptions> outputs;    ///< by output of the model
  std::optional<OutputMetrics> metrics;  ///< of the outputs
  std::uint64_t iteration = 0;           ///< optimizer steps begun
  std::unique_ptr<BatchFeed> feed;
  AllToAllMemory all_to_all_memory;  ///< outlives the communicator
  std::unique_ptr<Communicator> communicator;
  ServerCommunicator* server = nullptr;    ///< the communicator, on a parameter server
  WorkerCommunicator* ticketed = nullptr;  ///< the communicator, if steps come with tickets (ticket_queue.hpp)
  std::optional<Sharding> sharding;        ///< none: data parallel
  ParallelismChoice choice;
  std::vector<LayerSharding> layers;  ///< how each layer is sharded
  std::string plan_digest;            ///< of the plan as compiled, whatever batch sizes come later
  Arenas arenas;
  AlignedBuffer local_memory;  ///< of a tensor-parallel model: parameters that only this rank holds
  Arenas local;
  std::optional<Shards> shards;
  /// steps[0] has the batch size of the arenas; the rest are ordered by last use.
  std::vector<std::unique_ptr<CompiledStep>> steps;
  CompiledStep* training = nullptr;  ///< the step that trained last

 private:
  void choose_sharding(std::size_t batch_norm_replicas, const std::string& restored_sharding);
  void lay_out(std::size_t batch_size);
  [[nodiscard]] Plan make_plan(std::size_t batch_size) const;
  [[nodiscard]] std::unique_ptr<CompiledStep> make_step(std::size_t batch_size, Plan plan);
  void allocate(const Plan& plan);
  /// Tells the communicator of a parameter-server job which server holds what.
  void use_servers(const Plan& plan) const;
  /// Throws UsageError.
  void require_servers_for(const ServerLayout& layout) const;
  /// The weights (`array` 0) or one of the slots (from 1) of the arenas that hold a variable.
  [[nodiscard]] std::span<float> array_of(std::size_t variable, std::size_t array) const;
  /// Collective. Once all ranks have written their weights, recomputes the low-precision copies.
  void finish_writing_weights();
  /// Writes this rank's shard of a variable or of one of its slots.
  void write_variable(std::size_t variable, std::size_t array, std::span<const float> values);

  /// `batch_at` gives each of `count` batches of one size.
  template <typename BatchAt>
  [[nodiscard]] MetricSums evaluate(std::uint64_t count, const BatchAt& batch_at);

  Graph graph_;         ///< neither sharded nor laid out
  std::string digest_;  ///< of identity(), as compiled
};

}  // namespace lockstep
