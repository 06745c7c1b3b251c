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
  std::string file = {};  ///< the name of the model that the run saved last; empty: unknown
  std::uint64_t epochs = 0;
  std::uint64_t workers = 0;                     ///< 0: unknown
  std::map<std::string, double> last_logs = {};  ///< of the last epoch: loss, accuracy, ...
};

/// Returns nullopt if the file does not exist. Throws IoError if it cannot be read, DataError if it is not a
/// history.json.
[[nodiscard]] std::optional<HistorySummary> read_history(const std::filesystem::path& file);

/// "keras_mnist, 10 epochs, 2 workers; last epoch: accuracy 0.5396, loss 2.1198"
[[nodiscard]] std::string describe(const HistorySummary& summary);

}  // namespace lockstep
