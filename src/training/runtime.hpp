// What all models of a process share: its options, its world and its device.
#pragma once

#include "backend/backend.hpp"
#include "checkpoint/backup_directory.hpp"
#include "cluster/launcher_link.hpp"
#include "cluster/world.hpp"
#include "collective/communicator.hpp"
#include "collective/make_communicator.hpp"
#include "training/background_writer.hpp"

#include <lockstep/training/options.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class Runtime {
 public:
  explicit Runtime(const Options& options);
  ~Runtime();  ///< removes backups where the program ends without an error
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const World& world() const noexcept { return world_; }
  [[nodiscard]] const Backend& backend() const noexcept { return *backend_; }

  /// For what is agreed outside of training steps. It has no arenas.
  [[nodiscard]] Communicator& control() noexcept { return *control_; }

  /// A communicator of its own for a model's arenas.
  [[nodiscard]] std::unique_ptr<Communicator> new_communicator();

  /// True where this process talks to the user.
  [[nodiscard]] bool speaks() const noexcept { return world_.is_chief() && options_.verbose > 0; }

  /// Replicas of the job: one a worker, or what --replicas says.
  [[nodiscard]] std::size_t replicas() const noexcept;

  /// Throws UsageError on all ranks, quoting both values, unless all ranks hold the same `value` of `what`.
  void agree(const std::string& what, const std::string& value);

  /// This process' launcher, if it has one.
  [[nodiscard]] LauncherLink& launcher() noexcept { return launcher_; }
  /// Tells it that what follows are no steps, and may take long.
  void tell_busy() noexcept { launcher_.progress().busy(); }

  /// Numbers the fits of this process, from 1. All ranks count alike.
  [[nodiscard]] int count_fit() noexcept { return ++fits_; }

  /// Runs a job that writes files, after the one before it, beside training, once `gathering` has what it needs: where
  /// that is still under way all ranks call it, those who have nothing to write with an empty job, and all the calls
  /// below are collective. If it cannot write, --on-checkpoint-failure says whether that is a warning or an IoError,
  /// which one of the next calls throws.
  void write_later(Communicator& gathering, std::function<void()> job);
  [[nodiscard]] bool is_writing() const { return gathering_ != nullptr || writer_.busy(); }
  /// After each step: begins to write what has come.
  void move_on_writing();
  void check_writing();
  void finish_gathering();
  void finish_writing();
  /// For when an exception leaves: what has not yet been gathered will not be written.
  void drop_gathering() noexcept;

  /// Its backups are of no use any more once the program has come to its normal end.
  void remove_at_end(BackupDirectory directory) { backups_.directories.push_back(std::move(directory)); }
  void keep_backups() noexcept { backups_.directories.clear(); }

  /// All ranks call it after the same step, because a launcher has asked for it (Request): the program ends with 75.
  /// `what` the chief says of it, after the last file is written.
  [[noreturn]] void leave(const std::string& what);

 private:
  [[nodiscard]] std::function<void(bool)> tell_waiting();

  /// Removed after MPI's end: until then a rank may be lost, and those that begin again want them.
  struct FinishedBackups {
    std::vector<BackupDirectory> directories;
    bool shall_go = false;
    ~FinishedBackups();
  };

  Options options_;
  LauncherLink launcher_;
  FinishedBackups backups_;
  World world_;
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Backend> backend_;
  int fits_ = 0;
  Communicator* gathering_ = nullptr;    ///< what the next job to write waits for
  std::function<void()> gathering_job_;  ///< that one; empty where another rank writes
  bool warned_of_writing_ = false;       ///< belongs to the job that runs
  BackgroundWriter writer_;              // last: its job uses what is above
};

/// Two texts as a sentence can hold them: whole where they are short, else what lies around their first difference.
[[nodiscard]] std::pair<std::string, std::string> around_difference(const std::string& a, const std::string& b);

}  // namespace lockstep
