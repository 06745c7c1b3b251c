// Splits global batches: which examples this rank computes, in which order, and to which replicas they belong.
#pragma once

#include "backend/backend.hpp"
#include "data/sampler.hpp"
#include "session/run_context.hpp"

#include <lockstep/data/dataset.hpp>
#include <lockstep/layers/architecture.hpp>
#include <lockstep/losses/losses.hpp>
#include <lockstep/training/model.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

class BatchFeed {
 public:
  /// `run_context` and `architecture` must outlive the feed. `batch_norm_replicas` counts the replicas of all ranks.
  /// `computes_whole_batch`: this rank computes all examples of each batch, but counts metrics of its own shard only.
  BatchFeed(RunContext& run_context, const Architecture& architecture, std::size_t batch_norm_replicas,
            bool computes_whole_batch = false);

  [[nodiscard]] std::size_t batch_norm_replicas() const noexcept { return batch_norm_replicas_; }

  /// Examples in the largest local batch of a global batch of this size.
  [[nodiscard]] std::size_t capacity(std::size_t batch_size) const;

  /// Checks that a dataset fits the model and the losses of its outputs, and that all workers hold the same one.
  /// Returns at once if the dataset has passed before. Collective. Throws UsageError or DataError.
  void validate(const Dataset& data, std::span<const OutputOptions> outputs);

  /// Checks inputs to predict for: their shapes, that they are finite, and that all ranks have the same. Collective.
  /// Throws UsageError or DataError.
  void check_inputs(const Dataset& data);

  /// "60000 examples of (28, 28) (digest ...)", as `validate` found it; empty if the dataset was not validated.
  [[nodiscard]] std::string data_description(const Dataset& data) const;

  /// Weighs the training examples of a validated dataset by their classes, as Keras' class_weight: a class without a
  /// weight has 1. Without weights, examples have the dataset's own. Throws UsageError if a class does not exist, its
  /// weight is not finite, or the dataset has weights too.
  void set_class_weights(const Dataset& data, const std::map<int, double>& class_weight,
                         std::span<const OutputOptions> outputs);
  void clear_class_weights() noexcept { class_weights_.clear(); }

  /// This rank's slice of a batch of a validated dataset. Valid until the next call. `whole`: the batch that it is
  /// part of, over which losses are averaged.
  [[nodiscard]] StepContext prepare(const Batch& batch, std::uint64_t step, bool training) {
    return prepare(batch, batch, step, training);
  }
  [[nodiscard]] StepContext prepare(const Batch& batch, const Batch& whole, std::uint64_t step, bool training) {
    return prepare_slice(batch, whole, own_slice(), step, training);
  }

  /// The slice of any rank, for training where an update adds up the gradients of so many slices, whichever they are:
  /// it is scaled as if all of them were like this one. Valid until the next call.
  [[nodiscard]] StepContext prepare_slice(const Batch& batch, std::size_t slice, std::size_t slices_in_update,
                                          std::uint64_t step);
  /// Whether a slice has examples. A batch may have fewer examples than slices.
  [[nodiscard]] bool has_examples(const Batch& batch, std::size_t slice) const;

  /// The examples of checked data, for DataView. Valid until the next call.
  [[nodiscard]] std::span<const InputPointer> point_at_inputs(const Dataset& data);

 private:
  /// Among how many workers, or how many of the same, batches are divided.
  [[nodiscard]] int slices() const { return computes_whole_batch_ ? 1 : run_context_.training_workers(); }
  /// Which slice this rank computes; none: it computes no examples.
  [[nodiscard]] std::optional<int> own_slice() const;
  [[nodiscard]] StepContext prepare_slice(const Batch& batch, const Batch& whole, std::optional<int> slice,
                                          std::uint64_t step, bool training);

  /// Identifies a validated dataset. No addresses: they differ between ranks, and all ranks must decide alike whether
  /// to validate again.
  struct Identity {
    std::uint64_t dataset;  ///< Dataset::id
    std::size_t size;
    std::size_t target_types;
    std::int64_t elements;  ///< of an example's inputs
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  struct Checked {
    Identity identity;
    std::string description;
  };
  [[nodiscard]] static Identity identity_of(const Dataset& data);

  [[nodiscard]] std::span<const TargetPointer> point_at_targets(const Dataset& data);
  /// The weights of a dataset's examples; empty if there are none.
  [[nodiscard]] std::span<const float> weights_of(const Dataset& data, bool training) const;
  /// Sets the weights of `examples`, a part of the batch `whole`.
  void add_weights(StepContext& context, const Batch& whole, std::span<const float> weights);

  RunContext& run_context_;
  const Architecture& architecture_;
  std::size_t batch_norm_replicas_;
  bool computes_whole_batch_;
  std::vector<Checked> checked_;
  std::unique_ptr<Sampler> sampler_;
  std::uint64_t sampled_dataset_ = 0;  ///< Dataset::id
  bool sampler_shuffles_ = false;
  std::vector<InputPointer> inputs_;  ///< of the dataset of the last batch
  std::vector<TargetPointer> targets_;
  std::vector<std::uint32_t> examples_;
  std::uint64_t weighted_dataset_ = 0;  ///< Dataset::id
  std::vector<float> class_weights_;    ///< of its examples
  std::vector<std::uint32_t> whole_batch_;
  std::vector<float> sample_weights_;
  std::vector<Range> replica_ranges_;
};

}  // namespace lockstep
