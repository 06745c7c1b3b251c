// Ranges for custom training loops. A loop over them is backed up and resumed as fit() is:
//
//   for (const int epoch : model.epochs(options.epochs)) {
//     for (const Batch& batch : model.batches(data)) model.train_step(batch);
//     for (const Batch& batch : model.batches(test, {.shuffle = false})) model.test_step(batch);
//     model.end_epoch(epoch);
//   }
//
// A resumed run begins with the first batch after its backup, and runs what stands before batches() in the body again.
// So set a learning rate from the epoch's number there, not from the rate that it had.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace lockstep {

/// One global batch: the examples [position, position + size) of a dataset's stream. Each worker computes its slice.
struct Batch {
  const Dataset* data = nullptr;
  std::uint64_t position = 0;  ///< index of the first example in the stream, which repeats the dataset
  std::size_t size = 0;        ///< examples in the global batch
  bool shuffle = true;
  /// The size of the full batches in the same range, whose kernels compute this one. 0: --global-batch-size, or `size`
  /// if that is larger.
  std::size_t batch_size = 0;
};

struct ModelParts;

/// The remaining epochs, counted from 0. Advancing to the next one takes a backup if one is due. The loop ends with the
/// object, however it is left.
class EpochRange {
 public:
  class Iterator {
   public:
    explicit Iterator(const EpochRange& range) : range_(&range) {}
    [[nodiscard]] int operator*() const;
    Iterator& operator++();
    [[nodiscard]] bool operator==(std::default_sentinel_t) const;

   private:
    const EpochRange* range_;
  };

  EpochRange(ModelParts& parts, int epochs);
  ~EpochRange();
  EpochRange(const EpochRange&) = delete;
  EpochRange& operator=(const EpochRange&) = delete;
  [[nodiscard]] Iterator begin() const { return Iterator(*this); }
  [[nodiscard]] static std::default_sentinel_t end() { return {}; }

 private:
  ModelParts* parts_;
  int epochs_;
  bool is_backed_up_;
};

struct BatchOptions {
  int batch_size = 0;   ///< examples over all workers; 0: --global-batch-size
  bool shuffle = true;  ///< false: one whole pass in order, regardless of --steps-per-epoch; for evaluation
};

/// Global batches of one epoch. An epoch may iterate over several ranges, one after another; a resumed epoch skips the
/// batches before its backup. Advancing past a batch that was trained on takes a backup if one is due.
///
/// Where steps of parameter servers are not those of all workers, each worker gets some of the training batches and
/// must train on each once. The metrics of train_step() are then of this worker's slice, and those of end_epoch() of
/// all.
class BatchRange {
 public:
  class Iterator {
   public:
    explicit Iterator(const BatchRange& range);
    [[nodiscard]] Batch operator*() const;
    Iterator& operator++();
    [[nodiscard]] bool operator==(std::default_sentinel_t) const;

   private:
    void take_ticket();

    const BatchRange* range_;
    std::uint64_t iteration_;  ///< optimizer steps before the current batch
  };

  BatchRange(ModelParts& parts, const Dataset& data, const BatchOptions& options);
  [[nodiscard]] Iterator begin() const { return Iterator(*this); }
  [[nodiscard]] static std::default_sentinel_t end() { return {}; }

 private:
  /// Whether its batches come with tickets of parameter servers: a worker gets some of them, as it asks.
  [[nodiscard]] bool has_tickets() const;
  [[nodiscard]] Batch batch_at(std::int64_t step) const;

  ModelParts* parts_;
  const Dataset* data_;
  std::size_t batch_size_;
  bool shuffle_;
  std::int64_t begin_;  ///< [begin_, end_) within the batches of all ranges of the epoch
  std::int64_t end_;
};

}  // namespace lockstep
