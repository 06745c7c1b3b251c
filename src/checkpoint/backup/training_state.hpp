// The state that a backup holds in addition to the model, so that a resumed run continues as if it had never stopped.
// Training code converts to and from these value types.
#pragma once

#include "checkpoint/model_data.hpp"

#include <lockstep/core/callback_state.hpp>
#include <lockstep/core/history.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct TrainingState {
  int epoch = 0;               ///< the epoch that is not complete, from 0
  std::int64_t step = 0;       ///< steps of that epoch so far; all of them if only its end is to come
  bool stop_training = false;  ///< true if a callback has ended training
  double learning_rate = 0;

  double loss_sum = 0;  ///< metric sums of the epoch so far
  double num_examples = 0;
  std::vector<double> metric_sums;
  double seconds = 0;
  std::vector<GradientCounts> gradients;  ///< of the epoch so far, by worker
  History history;                        ///< of all completed epochs
  std::map<std::string, double> tracked;  ///< values that a custom loop tracks
  std::vector<CallbackState> callbacks;   ///< in the order of fit's callbacks

  int batch_norm_replicas = 1;
  std::string job;                                  ///< DirectoryOwner::job of the run that took the backup
  std::map<std::string, std::string> job_settings;  ///< settings that a resumed run must share: seed, ...
  std::map<std::string, std::string> provenance;    ///< plan, device, libraries: equal ones are needed for equal bits
};

/// Numbers are written with enough digits to round-trip exactly.
[[nodiscard]] SerializedTrainingState serialize_training_state(const TrainingState& state);

/// Throws DataError, whose message begins with `source`, unless serialize_training_state() wrote the state.
[[nodiscard]] TrainingState deserialize_training_state(const SerializedTrainingState& saved, const std::string& source);

}  // namespace lockstep
