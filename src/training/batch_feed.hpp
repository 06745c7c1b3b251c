// From global batches to what this rank computes of them: which examples, in which order, of which replicas.
#pragma once

#include "backend/backend.hpp"
#include "data/sampler.hpp"
#include "training/runtime.hpp"

#include <lockstep/data/dataset.hpp>
#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/training/model.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Examples of the largest slice of a batch that any of the ranks is given.
[[nodiscard]] std::size_t most_rows(std::size_t batch, int ranks, std::size_t replicas);

class BatchFeed {
 public:
  /// Both must outlive the feed. `replicas` are the whole job's. `whole_batches`: this rank computes all examples of
  /// each batch, but counts the metrics of its slice only.
  BatchFeed(Runtime& runtime, const Sequential& architecture, std::size_t replicas, bool whole_batches = false);

  [[nodiscard]] std::size_t replicas() const noexcept { return replicas_; }

  /// Examples of the largest slice that any rank is given.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Checks data that is to be trained on or evaluated: that it fits model and loss, and that all workers hold the
  /// same. What was checked before is known. Collective; throws UsageError or DataError.
  void use(const Dataset& data, const Loss& loss);

  /// Throws DataError unless the model takes such examples.
  void check_examples(const Dataset& data) const;

  /// "60000 examples of (28, 28) (digest ...)", as it was checked; empty for other data.
  [[nodiscard]] std::string description_of(const Dataset& data) const;

  /// This rank's part of a batch of data that was checked. Valid until the next call.
  [[nodiscard]] StepContext prepare(const Batch& batch, std::uint64_t step, bool training);

 private:
  /// What a data set was when it was checked: when it is gone, another may lie in its place. All ranks must decide
  /// alike whether to check, so nothing here may depend on where a rank's heap is.
  struct Identity {
    const Dataset* data;
    std::size_t size;
    std::size_t kind_of_targets;
    std::int64_t elements;  ///< of an example
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  struct Checked {
    Identity identity;
    std::string description;
  };
  [[nodiscard]] static Identity identity_of(const Dataset& data);

  Runtime& runtime_;
  const Sequential& architecture_;
  std::size_t replicas_;
  bool whole_batches_;
  std::size_t capacity_ = 0;
  std::vector<Checked> checked_;
  std::unique_ptr<ExampleStream> stream_;
  const Dataset* streamed_ = nullptr;
  bool stream_shuffles_ = false;
  std::vector<std::uint32_t> examples_;
  std::vector<ReplicaRows> replica_rows_;
};

}  // namespace lockstep
