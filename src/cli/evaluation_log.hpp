// What an evaluator has found, on disk: EVAL_DIR/evaluation.json, curves for TensorBoard, and the best model.
#pragma once

#include "checkpoint/newest_model.hpp"
#include "core/file_descriptor.hpp"
#include "report/event_file_writer.hpp"

#include <lockstep/core/history.hpp>

#include <nlohmann/json.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct Evaluation {
  Logs logs = {};
  std::optional<std::uint64_t> iterations = {};      ///< optimizer steps; unknown in a file that was not compiled
  std::set<std::string> upward = {};                 ///< names in `logs` of which a larger value is a better one
  std::string test_set = {};                         ///< with a digest: values of different test sets are not compared
  std::optional<double> input_scale = {};            ///< of the test set's bytes, if it has some
  std::map<std::string, std::string> settings = {};  ///< what else the values depend on, by option: "--loss"
};

class EvaluationLog {
 public:
  /// Creates the directory, locks it and goes on from what an evaluator before this one has written. `monitor` is the
  /// loss or metric of which the best model is kept, `followed` the job's model directory. Throws PeerError if another
  /// evaluator or a job writes there, UsageError if a file has the best model's name that no evaluator has written
  /// there, DataError if evaluation.json is damaged or of another metric, IoError.
  EvaluationLog(std::filesystem::path directory, std::string monitor, const std::filesystem::path& followed);

  /// Takes the copy of the model that was evaluated, a durable one, if it is the best. Does nothing new for the version
  /// that was evaluated last, unless there is no best model. An evaluator that is killed here, or fails, leaves
  /// evaluation.json and the best model of one evaluation. Throws UsageError if the evaluation lacks the metric, or is
  /// of another test set or other settings than those before.
  ///
  /// `training` is the job that began the followed training (JobWatch::training). If the log is of another one, or of
  /// another directory, this warns and begins anew: the evaluations before move to "earlier_evaluations", and the model
  /// is the best. A model of the other job, which is in the log already, changes nothing.
  void add(const ModelVersion& version, const Evaluation& evaluation, const std::filesystem::path& copy,
           const std::string& training);

  /// Returns false, and warns, if the best model's file has gone or has other bytes than those that were written: the
  /// next model is the best one then. Keeps a file of other bytes under a name that ends in ".damaged". Throws IoError.
  bool check_best();

  /// The best model, with the time of the file that was evaluated; none without one.
  [[nodiscard]] std::optional<ModelVersion> best() const;

  /// Loss and metrics of the best model, and of the one that was evaluated last; empty without one.
  [[nodiscard]] Logs best_scores() const { return scores_of(content_.best); }
  [[nodiscard]] Logs last_scores() const {
    return content_.evaluations.empty() ? Logs() : scores_of(content_.evaluations.back());
  }

  [[nodiscard]] std::size_t size() const noexcept { return content_.evaluations.size(); }
  [[nodiscard]] std::string describe_best() const;

 private:
  using Json = nlohmann::ordered_json;
  using Settings = std::map<std::string, std::string>;

  /// Everything in evaluation.json but the monitor.
  struct Content {
    std::string job = {};        ///< that began the training; empty: unknown
    std::string directory = {};  ///< its model directory, from this one: volumes are mounted at several paths
    std::string test_set = {};   ///< empty: unknown
    Settings settings = {};      ///< empty: unknown
    std::vector<Json> evaluations = {};
    std::vector<Json> earlier = {};  ///< of other jobs, with their "job" and "directory"
    Json best = {};                  ///< null: none
  };

  [[nodiscard]] std::filesystem::path file() const { return directory_ / "evaluation.json"; }
  [[nodiscard]] std::filesystem::path best_file() const;
  void read(std::istream& stream);
  void write(Content content);
  [[nodiscard]] bool is_of_another_job(const std::string& job) const;
  [[nodiscard]] bool has_of_another_job(const Json& entry, const std::string& job) const;
  void require_comparable(const Evaluation& evaluation) const;
  [[nodiscard]] std::string describe_other_job() const;
  [[nodiscard]] Content begun_anew() const;
  void finish_last() const;
  void require_own_models() const;
  [[nodiscard]] bool has_written(const std::filesystem::path& file) const;
  [[nodiscard]] static Logs scores_of(const Json& entry);
  [[nodiscard]] bool is_better(double value, bool is_upward, const Json& best) const;

  std::filesystem::path directory_;
  std::string monitor_;
  FileDescriptor lock_;
  std::string followed_;  ///< as Content::directory
  Content content_;
  std::optional<ModelVersion> checked_;  ///< the best model's file, whose digest is right
  std::optional<EventFileWriter> events_;
};

}  // namespace lockstep
