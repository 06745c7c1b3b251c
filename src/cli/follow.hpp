// `lockstep evaluate --follow`: TensorFlow's evaluator task. Beside a job that trains, it evaluates each model and
// backup that the job writes, keeps the best, and ends when the job has ended.
#pragma once

#include "cli/evaluation_log.hpp"
#include "cli/exporters.hpp"
#include "cli/model_settings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/options.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct FollowSettings {
  std::filesystem::path directory;  ///< where the job writes models; empty: there is no job to follow
  std::filesystem::path backups;    ///< empty: "backup" in the directory
  std::filesystem::path eval_dir;   ///< empty: "eval" in the directory
  std::string monitor = "loss";     ///< of which the best model is kept
  double throttle = 0;              ///< seconds from the begin of one evaluation to that of the next, at least
  ExportSettings exports = {};
  double timeout = 600;  ///< seconds without a new file, or with an error, after which a job is given up
};

/// The options that fill `settings`, which must outlive them.
[[nodiscard]] std::vector<ProgramOption> follow_options(FollowSettings& settings);

/// Throws UsageError if --model and --follow are both given, options of --follow without it, a file as --follow, or
/// options of --export without it.
void require_consistent(const FollowSettings& follow, const ModelSettings& settings);

/// The test set cannot be used, which is no fault of a model.
class TestSetError : public DataError {
 public:
  /// `may_pass`: it may just be being written.
  TestSetError(const std::string& what, bool may_pass) : DataError(what), may_pass_(may_pass) {}
  [[nodiscard]] bool may_pass() const noexcept { return may_pass_; }

 private:
  bool may_pass_;
};

/// Evaluates each new file until the job has ended, as the record of a job tells that finishes in this time. Writes
/// EVAL_DIR/evaluation.json, event files for TensorBoard, and the best model as "best.h5" or "best.keras", and exports
/// models. Goes on from what is there, as an evaluator does whose pod is replaced. A damaged model is told of and left
/// out. So is a best model that is gone or damaged: the next model is the best one then. Other errors of files, and
/// those of a test set that may pass, are told of once and tried again for the time of --follow-timeout. Throws
/// PeerError if no job runs and none has ended in time, DataError if the job's last model is damaged, UsageError if no
/// evaluation has the metric that is monitored or if EVAL_DIR is another job's or the exports', what has not passed,
/// and what EvaluationLog throws. Calls `report_busy` at each look.
void follow_job(FollowSettings settings, const std::function<Evaluation(const std::filesystem::path& file)>& evaluate,
                const std::function<void()>& report_busy);

}  // namespace lockstep
