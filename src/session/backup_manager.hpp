// Backups of a training run: taken between two steps, written during training, restored at the next start.
#pragma once

#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/backup/training_state.hpp"
#include "session/checkpoint_writer.hpp"
#include "session/read_on_chief.hpp"
#include "session/training_session.hpp"

#include <lockstep/training/callbacks/backup_and_restore.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

class BackupManager {
 public:
  /// `session` and `writer` must outlive the object. Backups hold the state of `callbacks`, in fit's order. A backup is
  /// restored only into a run with equal `job` settings, model and options. Each manager counts as one fit of the
  /// process.
  BackupManager(TrainingSession& session, CheckpointWriter& writer, const BackupAndRestore& settings,
                std::vector<Callback*> callbacks, KeyValues job);
  ~BackupManager();  ///< during stack unwinding, keeps the backups
  BackupManager(const BackupManager&) = delete;
  BackupManager& operator=(const BackupManager&) = delete;

  /// Restores the newest backup as --resume says: weights, optimizer, position, history, callbacks. Collective. Throws
  /// UsageError if the backup is of another job or --resume require finds none, DataError if all backups are damaged
  /// (unless a later fit has some: this one then trains again), IoError if some cannot be read.
  void restore(int epochs);

  /// What tells this job from another one with the same command line.
  [[nodiscard]] JobContents contents(int epochs) const;

  /// False with --backup-save-freq never.
  [[nodiscard]] bool may_resume() const noexcept { return options_.save_freq != BackupOptions::never; }

  /// Sets a job setting that becomes known only after restore(). Throws UsageError if the restored backup has another
  /// value of it.
  void set_job_setting(const std::string& what, const std::string& value);

  /// Whether a backup is due after this step of the job, counted from 1. If so, finish the steps in flight first.
  [[nodiscard]] bool is_due_after(std::uint64_t step) const noexcept;

  /// Take a backup if one is due. Call them once the session's position is that of the next step. If a backup is due,
  /// or a launcher or Ctrl-C asked to leave, no step may be in flight. A backup that is due while the previous one is
  /// still being gathered or written is skipped and counted; reported if the frequency was given in steps. If one asked
  /// to leave, all ranks take a last backup and leave.
  void after_step();
  void after_epoch();

  /// Waits for the last backup. Throws IoError if it could not be written.
  void finish();

 private:
  void save();
  void save_unguarded();
  [[noreturn]] void save_and_leave();
  [[nodiscard]] TrainingState capture() const;
  void adopt(const LoadedModel& backup, const TrainingState& saved);
  /// Throws DataError if the backup cannot be restored into this model.
  void check_usable(const std::string& path, const ModelData& backup, const TrainingState& saved) const;
  /// From now on the first NaN restarts the job. Collective; only the chief has a lock.
  void watch_nonfinite(DirectoryLock* lock);
  /// Runs `work`, which may meet the error of a backup that was being written.
  void save_guarded(const std::function<void()>& work) const;
  /// Chief only: the others know neither the job nor whether it has written to the file of its initial weights.
  void check_same_job(const std::string& path, const TrainingState& state, int epochs,
                      bool has_overwritten_origin) const;
  void warn_if_provenance_differs(const TrainingState& saved) const;

  TrainingSession& session_;
  CheckpointWriter& writer_;
  int uncaught_exceptions_;
  BackupDirectory directory_;
  BackupOptions options_;
  int fit_;
  std::vector<Callback*> callbacks_;
  KeyValues job_;
  std::uint64_t last_due_ = 0;  ///< optimizer step at which a backup was due last
  bool warned_of_skipping_ = false;
  std::string restored_path_;
  std::map<std::string, std::string> restored_job_;  ///< the restored backup's settings
};

}  // namespace lockstep
