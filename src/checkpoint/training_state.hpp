// What a backup keeps beside the model, so that training goes on as if it had never stopped: plain values that training
// fills and takes back.
#pragma once

#include "checkpoint/saved_model.hpp"

#include <lockstep/core/history.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// What one callback keeps.
struct KeptValues {
  std::map<std::string, double> numbers;
  std::vector<SavedTensor> arrays;
};

struct TrainingState {
  int epoch = 0;          ///< of the next step, counted from 0
  std::int64_t step = 0;  ///< the next step of that epoch
  bool stopped = false;   ///< a callback has ended training
  double learning_rate = 0;

  double loss_sum = 0;  ///< metric sums of the epoch so far
  double correct = 0;
  double count = 0;
  double seconds = 0;
  History history;                        ///< of all epochs before
  std::map<std::string, double> numbers;  ///< a custom loop's own
  std::vector<KeptValues> callbacks;      ///< in the order of fit's list

  int replicas = 1;
  std::map<std::string, std::string> job;      ///< what a run that goes on must have in common with this one: seed, ...
  std::map<std::string, std::string> made_by;  ///< plan, device, libraries: only the same give the same bits
};

/// Numbers are written so that they come back bit by bit.
[[nodiscard]] SavedState to_saved_state(const TrainingState& state);

/// Throws DataError, beginning with `source`, for what to_saved_state() did not write.
[[nodiscard]] TrainingState training_state_from(const SavedState& saved, const std::string& source);

}  // namespace lockstep
