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
#include <string>
#include <vector>

namespace lockstep {

struct Evaluation {
  Logs logs;
  std::optional<std::uint64_t> iterations = {};  ///< optimizer steps; unknown in a file that was not compiled
};

class EvaluationLog {
 public:
  /// Creates the directory, locks it and goes on from what an evaluator before this one has written. `monitor` is the
  /// loss or metric of which the best model is kept. Throws PeerError if another evaluator writes there, DataError if
  /// evaluation.json is damaged or of another metric, IoError.
  EvaluationLog(std::filesystem::path directory, std::string monitor);

  /// Whether an evaluator before this one evaluated the file last.
  [[nodiscard]] bool ends_with(const ModelVersion& version) const;

  /// Takes the copy of the model that was evaluated: it becomes the best, or is removed. Returns the file of the best
  /// model if it is this one. An evaluator that is killed here leaves evaluation.json and the best model of one
  /// evaluation to the next one. Throws UsageError if the evaluation lacks the metric.
  std::optional<std::filesystem::path> add(const ModelVersion& version, const Evaluation& evaluation,
                                           const std::filesystem::path& copy);

  [[nodiscard]] std::size_t size() const noexcept { return evaluations_.size(); }
  [[nodiscard]] std::string describe_best() const;

 private:
  using Json = nlohmann::ordered_json;

  [[nodiscard]] std::filesystem::path file() const { return directory_ / "evaluation.json"; }
  void lock();
  void read(std::istream& stream);
  void finish_last() const;
  [[nodiscard]] bool is_better(double value) const;

  std::filesystem::path directory_;
  std::string monitor_;
  bool is_upward_;
  FileDescriptor lock_;
  std::vector<Json> evaluations_;
  std::string last_file_;    ///< of an evaluator before this one
  double last_written_ = 0;  ///< in seconds since 1970
  std::optional<double> best_value_;
  std::filesystem::path best_file_;
  Json best_;
  std::optional<EventFileWriter> events_;
};

}  // namespace lockstep
