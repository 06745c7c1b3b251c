// Backups of a training run: taken between two steps, written beside training, found again at the next start.
#pragma once

#include "checkpoint/backup_directory.hpp"
#include "checkpoint/training_state.hpp"
#include "training/model_state.hpp"
#include "training/shared_read.hpp"

#include <lockstep/training/callbacks.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

class Backups {
 public:
  /// `callbacks` are those whose state is kept, in fit's order; `job` is what a run must have in common with the one
  /// whose backup it takes up, beyond what every model knows of itself. Counts as one more fit of this process.
  Backups(Model& model, ModelState& state, const BackupAndRestore& settings, std::vector<Callback*> callbacks,
          NamedTexts job);
  ~Backups();  ///< in an error's wake: tells the runtime that the backups are still needed
  Backups(const Backups&) = delete;
  Backups& operator=(const Backups&) = delete;

  /// Goes on from the newest backup, as --resume says: weights, optimizer, place in the epoch, history, callbacks.
  /// Collective. Throws UsageError where the backup is of another job, DataError where all are damaged.
  void restore(int epochs);

  /// Whether a backup comes due with this optimizer step, counted from 1: then no other may be under way.
  [[nodiscard]] bool due_after(std::uint64_t step) const noexcept;

  /// Call them when the state's position is that of the next step, and no other is under way where one is due or all
  /// shall leave. The chief copies, and writes on another thread; of a divided model all ranks copy, and their slices
  /// travel to the chief first. A backup that comes due while the one before is still on its way is left out. Where
  /// launchers have asked for it all ranks leave, after a last backup.
  void after_step();
  void after_epoch();

  /// Waits for the last one. Throws IoError where it could not be written.
  void finish();

 private:
  void save();
  [[noreturn]] void save_and_leave();
  [[nodiscard]] TrainingState capture() const;
  void adopt(const SharedModel& backup, const TrainingState& saved);
  void check_job(const std::string& path, const TrainingState& state) const;
  void warn_of_difference(const TrainingState& saved) const;

  Model& model_;
  ModelState& state_;
  int errors_before_;
  BackupDirectory directory_;
  BackupOptions options_;
  int fit_;
  std::vector<Callback*> callbacks_;
  NamedTexts job_;
};

}  // namespace lockstep
