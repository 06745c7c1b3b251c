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
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct Evaluation {
  Logs logs = {};
  std::optional<std::uint64_t> iterations = {};  ///< optimizer steps; unknown in a file that was not compiled
  std::set<std::string> upward = {};             ///< names in `logs` of which a larger value is a better one
  std::string test_set = {};                     ///< with a digest: values of different test sets are not compared
};

class EvaluationLog {
 public:
  /// Creates the directory, locks it and goes on from what an evaluator before this one has written. `monitor` is the
  /// loss or metric of which the best model is kept. Throws PeerError if another evaluator or a job writes there,
  /// UsageError if a file has the best model's name that no evaluator has written there, DataError if evaluation.json
  /// is damaged or of another metric, IoError.
  EvaluationLog(std::filesystem::path directory, std::string monitor);

  /// Takes the copy of the model that was evaluated, a durable one, if it is the best. Does nothing new for the version
  /// that was evaluated last, unless there is no best model. An evaluator that is killed here, or fails, leaves
  /// evaluation.json and the best model of one evaluation. Throws UsageError if the evaluation lacks the metric, or is
  /// of another test set than those before.
  void add(const ModelVersion& version, const Evaluation& evaluation, const std::filesystem::path& copy);

  /// Returns false, and warns, if the best model's file has gone or has other bytes than those that were written: the
  /// next model is the best one then. Keeps a file of other bytes under a name that ends in ".damaged". Throws IoError.
  bool check_best();

  /// The best model, with the time of the file that was evaluated; none without one.
  [[nodiscard]] std::optional<ModelVersion> best() const;

  /// Loss and metrics of the best model, and of the one that was evaluated last; empty without one.
  [[nodiscard]] Logs best_scores() const { return scores_of(best_); }
  [[nodiscard]] Logs last_scores() const { return evaluations_.empty() ? Logs() : scores_of(evaluations_.back()); }

  [[nodiscard]] std::size_t size() const noexcept { return evaluations_.size(); }
  [[nodiscard]] std::string describe_best() const;

 private:
  using Json = nlohmann::ordered_json;

  [[nodiscard]] std::filesystem::path file() const { return directory_ / "evaluation.json"; }
  [[nodiscard]] std::filesystem::path best_file() const;
  void read(std::istream& stream);
  void write(std::vector<Json> evaluations, Json best, const std::string& test_set);
  void finish_last() const;
  void require_own_models() const;
  [[nodiscard]] bool has_written(const std::filesystem::path& file) const;
  [[nodiscard]] static Logs scores_of(const Json& entry);
  [[nodiscard]] bool is_better(double value, bool is_upward) const;

  std::filesystem::path directory_;
  std::string monitor_;
  FileDescriptor lock_;
  std::string test_set_;  ///< empty: unknown
  std::vector<Json> evaluations_;
  Json best_;                            ///< null: none
  std::optional<ModelVersion> checked_;  ///< the best model's file, whose digest is right
  std::optional<EventFileWriter> events_;
};

}  // namespace lockstep
