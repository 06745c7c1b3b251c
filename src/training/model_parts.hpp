// The parts of a Model.
#pragma once

#include "session/backup_manager.hpp"
#include "session/checkpoint_writer.hpp"
#include "session/rank_model.hpp"
#include "session/run_context.hpp"
#include "session/training_rounds.hpp"
#include "session/training_session.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep {

/// Each member depends only on members declared before it.
struct ModelParts {
  ModelParts(std::shared_ptr<RunContext> shared_context, Architecture architecture)
      : run_context(std::move(shared_context)), model(*run_context, std::move(architecture)) {}

  std::shared_ptr<RunContext> run_context;
  RankModel model;
  TrainingSession session{model};
  CheckpointWriter checkpoints{session};
  bool is_in_epoch_loop = false;                ///< between Model::epochs and the end of its last epoch
  std::int64_t batches_in_epoch = 0;            ///< in all ranges of the current epoch so far
  std::unique_ptr<BackupManager> loop_backups;  ///< of the custom loop; null if it takes none
  std::unique_ptr<TrainingRounds> rounds;       ///< of a range of training batches, if they come with tickets
  std::optional<Ticket> ticket;                 ///< of the current batch
  bool is_ticket_used = false;                  ///< train_step() was called for the batch
};

/// Loss and metrics on data, which history.json does not record as the model's evaluation. Collective.
[[nodiscard]] Logs evaluate(ModelParts& parts, const Dataset& data, const InferenceOptions& options);

/// For Lockstep's own callbacks, which need more than a model's public interface.
[[nodiscard]] ModelParts& parts_of(Model& model);

}  // namespace lockstep
