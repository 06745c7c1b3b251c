// A summary of a run's history.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

struct HistorySummary {
  std::string program;
  std::string file = {};                        ///< the name of the model that the run saved last; empty: unknown
  std::optional<std::uint64_t> iteration = {};  ///< of that model
  std::optional<double> input_scale = {};       ///< --input-scale, if it was given
  std::uint64_t epochs = 0;
  std::uint64_t workers = 0;                      ///< 0: unknown
  std::map<std::string, double> last_logs = {};   ///< of the last epoch: loss, accuracy, ...
  std::map<std::string, double> evaluation = {};  ///< of the test set; empty if the run did not evaluate
};

/// Returns nullopt if the file does not exist. Throws IoError if it cannot be read, DataError if it is not a
/// history.json.
[[nodiscard]] std::optional<HistorySummary> read_history(const std::filesystem::path& file);

/// The history.json beside a model, if it describes that model: by its name and, if it is known, its optimizer step.
[[nodiscard]] std::optional<HistorySummary> read_history_of(const std::filesystem::path& model,
                                                            std::optional<std::uint64_t> iteration);

/// "keras_mnist, 10 epochs, 2 workers; last epoch: accuracy 0.5396, loss 2.1198"
[[nodiscard]] std::string describe(const HistorySummary& summary);

}  // namespace lockstep
