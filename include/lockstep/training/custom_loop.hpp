// What a training loop of one's own goes through, so that it is backed up and restored as fit() is:
//
//   for (const int epoch : model.epochs(options.epochs)) {
//     for (const Batch& batch : model.batches(data)) model.train_step(batch);
//     model.end_epoch(epoch);
//   }
//
// A run that goes on from a backup begins with the epoch, and in it with the batch, that come next.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace lockstep {

/// One global batch: the examples [begin, begin + size) of a data set's stream. Every worker takes its own slice.
struct Batch {
  const Dataset* data = nullptr;
  std::uint64_t position = 0;  ///< first place in the stream of examples
  std::size_t size = 0;        ///< examples in the whole global batch
  bool shuffle = true;
};

class ModelState;

/// The epochs that are left, counted from 0. Going on to the next one takes a backup where one is due.
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

  EpochRange(ModelState& state, int epochs) : state_(&state), epochs_(epochs) {}
  [[nodiscard]] Iterator begin() const { return Iterator(*this); }
  [[nodiscard]] static std::default_sentinel_t end() { return {}; }

 private:
  ModelState* state_;
  int epochs_;
};

/// The global batches of this epoch that are left. Going on to the next one takes a backup where one is due.
class BatchRange {
 public:
  class Iterator {
   public:
    explicit Iterator(const BatchRange& range) : range_(&range) {}
    [[nodiscard]] Batch operator*() const;
    Iterator& operator++();
    [[nodiscard]] bool operator==(std::default_sentinel_t) const;

   private:
    const BatchRange* range_;
  };

  BatchRange(ModelState& state, const Dataset& data, bool shuffle) : state_(&state), data_(&data), shuffle_(shuffle) {}
  [[nodiscard]] Iterator begin() const { return Iterator(*this); }
  [[nodiscard]] static std::default_sentinel_t end() { return {}; }

 private:
  ModelState* state_;
  const Dataset* data_;
  bool shuffle_;
};

}  // namespace lockstep
