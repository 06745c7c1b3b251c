// State that all models of a process share: options, world, device, launcher connection, and the thread that writes
// files.
#pragma once

#include "backend/backend.hpp"
#include "checkpoint/backup/backup_directory.hpp"
#include "cluster/world/launcher_connection.hpp"
#include "cluster/world/world.hpp"
#include "collective/communicator.hpp"
#include "collective/make_communicator.hpp"
#include "collective/parameter_server/task_group.hpp"
#include "collective/parameter_server/update_policy.hpp"
#include "core/stop_request.hpp"
#include "ownership/directory_lock.hpp"
#include "ownership/owned_directories.hpp"
#include "session/background_writer.hpp"

#include <lockstep/training/options.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct CompiledModel;

class RunContext {
 public:
  explicit RunContext(const Options& options);
  ~RunContext();  ///< waits for files; if the program ends without an error, the chief removes the backups
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;

  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const World& world() const noexcept { return world_; }
  [[nodiscard]] const Backend& backend() const noexcept { return *backend_; }
  [[nodiscard]] LauncherConnection& launcher() noexcept { return launcher_; }
  [[nodiscard]] BackgroundWriter& writer() noexcept { return writer_; }

  /// For collectives outside of training steps. Has no arenas.
  [[nodiscard]] Communicator& control() noexcept { return *control_; }

  /// The tasks of a parameter-server job; null in other jobs.
  [[nodiscard]] TaskGroup* tasks() const noexcept { return tasks_.get(); }

  /// When parameter servers update. Only in a job that has some.
  [[nodiscard]] UpdatePolicy update_policy() const;
  /// The workers that compute steps: all of them, but for a chief that coordinates parameter servers.
  [[nodiscard]] int training_workers() const;
  /// Among the training workers; none: this rank is no such worker.
  [[nodiscard]] std::optional<int> training_rank() const;

  /// Whether this worker replays what happened before it was there, so that results of its own do not matter.
  [[nodiscard]] bool is_replaying() const { return tasks_ && tasks_->is_replaying(); }

  /// Call it before whatever trains or evaluates. On a parameter server it does not return: the server serves until the
  /// job is over, and exits. Does nothing in other jobs, and after the first call. Collective.
  void begin_service();

  /// On a parameter server: the models that are compiled.
  [[nodiscard]] std::vector<CompiledModel*>& served_models() noexcept { return served_models_; }

  /// A communicator for one model's arenas.
  [[nodiscard]] std::unique_ptr<Communicator> new_communicator();

  /// Whether this rank prints: the chief does, unless --verbose is 0.
  [[nodiscard]] bool prints() const noexcept { return world_.is_chief() && options_.verbose > 0; }
  /// Prints a line if `prints()`.
  void print(const std::string& line) const;
  /// Prints lines that end with a line break, if `prints()`.
  void print_text(const std::string& lines) const;

  /// Replicas of all ranks: --batch-norm-replicas, or one per training worker.
  [[nodiscard]] std::size_t batch_norm_replicas() const;

  /// --global-batch-size.
  [[nodiscard]] std::size_t default_batch_size() const noexcept {
    return static_cast<std::size_t>(options_.global_batch_size);
  }
  /// The batch size for a `batch_size` field of the public API. Throws UsageError if it is negative.
  [[nodiscard]] std::size_t batch_size(int requested) const;

  /// Collective. Throws UsageError on all ranks, quoting both values, unless `value` is equal on all ranks. `what`
  /// names it in the message; `remedy` is how to make it equal, if that is not obvious.
  void require_equal_on_all_ranks(const std::string& what, const std::string& value, const std::string& remedy = {});

  /// Reports to the launcher that a phase without training steps begins, which may be long.
  void report_busy() noexcept { launcher_.progress().report_busy(); }

  /// Numbers the fits of this process, from 1. All ranks count alike.
  [[nodiscard]] int next_fit_number() noexcept { return ++fits_; }

  /// Makes this job the owner of a directory until the program ends; see DirectoryLock. Only the chief calls it.
  DirectoryLock& lock_directory(const std::filesystem::path& directory) {
    return backups_.owned.lock(directory, identity_);
  }
  /// For everything that this job writes.
  [[nodiscard]] WriteGuard write_guard() const { return backups_.owned.guard(); }
  [[nodiscard]] const DirectoryOwner& identity() const noexcept { return identity_; }
  /// Records in the job's directories that it is about to write to a file of its initial weights.
  void record_overwriting_origin() {
    for (DirectoryLock& lock : backups_.owned.locks()) lock.record_overwriting_origin();
  }
  /// Records in the job's directories which job began its training; see DirectoryLock. Only the chief calls it.
  void record_training(const std::string& training) {
    for (DirectoryLock& lock : backups_.owned.locks()) lock.record_training(training);
  }
  /// What the job computes with, beside its options. A program that fits several times is told apart by its first fit:
  /// the contents of later ones depend on its results.
  void set_contents(const JobContents& contents);

  /// While a loop trains, Ctrl-C stops it after a step, unless a launcher forwards such requests; see interrupts.hpp.
  void begin_training_loop();
  void end_training_loop() noexcept;

  /// What this rank is asked to do, by its launcher or by Ctrl-C.
  [[nodiscard]] StopRequest stop_request() const noexcept;
  /// "Leaving at the launcher's request", or "Interrupted".
  [[nodiscard]] std::string describe_stop() const;

  /// Whether a custom loop with backups is running: its backups hold one model.
  [[nodiscard]] bool is_in_backed_up_loop() const noexcept { return backed_up_loops_ > 0; }
  void begin_backed_up_loop() noexcept { ++backed_up_loops_; }
  void end_backed_up_loop() noexcept { --backed_up_loops_; }

  /// Removes the directory's backups when the program ends without an error, unless `keep_backups` is called.
  void remove_on_success(BackupDirectory directory) { backups_.directories.push_back(std::move(directory)); }
  /// The directories that remove_on_success was called with.
  [[nodiscard]] const std::vector<BackupDirectory>& backup_directories() const noexcept { return backups_.directories; }
  void keep_backups() noexcept {
    backups_.directories.clear();
    backups_.keep_their_locks = true;
  }

  /// Ends the program with exit code 75 because a launcher or Ctrl-C asked for it (StopRequest). Waits until all files
  /// are written. All ranks call it after the same step. The chief logs `message`.
  [[noreturn]] void leave(const std::string& message);

  /// Ends the program with exit code 0 because the job was over before it started. All ranks call it.
  [[noreturn]] void end_finished_job(const std::string& message);

 private:
  [[nodiscard]] CommunicatorOptions communicator_options();
  /// "worker 1", "ps 0": whose text it is in an all-gather.
  [[nodiscard]] std::string participant(std::size_t index) const;

  /// Cleans up after MPI_Finalize: until then a rank may be lost, and the restarted ranks need backups and owners.
  struct FinishedBackupsRemover {
    std::filesystem::path model_directory;
    OwnedDirectories owned;
    std::vector<BackupDirectory> directories = {};
    bool remove_on_exit = false;
    bool keep_their_locks =
        false;  ///< the locks of their directories record no end, after which another job clears them
    ~FinishedBackupsRemover();
  };

  Options options_;
  DirectoryOwner identity_;  ///< of this process' job
  LauncherConnection launcher_;
  FinishedBackupsRemover backups_{options_.model_dir, OwnedDirectories(launcher_.lock_keeper())};
  std::unique_ptr<TaskGroup> tasks_;
  std::vector<CompiledModel*> served_models_;
  World world_;
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Backend> backend_;
  bool has_contents_ = false;
  int fits_ = 0;
  int backed_up_loops_ = 0;
  BackgroundWriter writer_;  // last: its job uses the members above
};

/// Shortens two texts for a message: whole if short, else the member of JSON in which they first differ, or the text
/// around it.
[[nodiscard]] std::pair<std::string, std::string> excerpts_around_difference(const std::string& a,
                                                                             const std::string& b);

}  // namespace lockstep
