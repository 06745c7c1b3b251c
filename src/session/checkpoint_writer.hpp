// Writes a model's checkpoints: takes a snapshot between two steps, gathers shards, and writes the file while training
// continues.
#pragma once

#include "session/background_writer.hpp"
#include "session/snapshot.hpp"
#include "session/training_session.hpp"

#include <filesystem>
#include <functional>
#include <optional>

namespace lockstep {

class CheckpointWriter {
 public:
  /// The session must outlive the writer.
  explicit CheckpointWriter(TrainingSession& session) : session_(session) {}
  ~CheckpointWriter();  ///< waits for files; during stack unwinding, drops an incomplete gather
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Whether this rank takes part in saving: the chief, and all ranks of a tensor-parallel model.
  [[nodiscard]] bool participates() const;

  /// Copies weights and optimizer state. On the chief another thread may visit the snapshot as soon as the communicator
  /// has gathered the shards. Valid until the next call. Call it again only after the snapshot has been written.
  /// `max_gather_steps`: see Communicator::start_gather.
  [[nodiscard]] Snapshot& take_snapshot(std::size_t max_gather_steps = 0);

  /// The same for a caller that visits the snapshot at once, on the chief, before weights change: takes less memory.
  [[nodiscard]] Snapshot& take_snapshot_to_write_now();

  /// Runs the chief's `job` on the background thread when the snapshot is complete. See BackgroundWriter::write.
  void write_async(BackgroundWriter::ModelDirectory model_directory, std::function<void()> job);

  /// The chief writes the model, and into --model-dir also history.json. `save_async` returns after the snapshot.
  void save(const std::filesystem::path& path);
  void save_async(const std::filesystem::path& path);

  /// The chief writes report.html for its launcher's status port, at most every two seconds. Call it at the end of
  /// epochs.
  void write_live_report();

 private:
  void prepare_snapshot();
  [[nodiscard]] NamedValues facts() const;
  [[nodiscard]] std::function<void()> make_job(const std::filesystem::path& path, Snapshot& snapshot);

  TrainingSession& session_;
  std::optional<Snapshot> snapshot_;  ///< reused, to avoid allocating its memory again
  double live_report_at_ = 0;         ///< monotonic_seconds() from which another one is due
  int compilation_ = 0;               ///< RankModel::compilation() of the snapshot's model
};

}  // namespace lockstep
