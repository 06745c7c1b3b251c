// The record of a run, history.json, in few words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

struct HistorySummary {
  std::string program;
  std::uint64_t epochs = 0;
  std::uint64_t workers = 0;                ///< 0: unknown
  std::map<std::string, double> last = {};  ///< of the last epoch: loss, accuracy, ...
};

/// Nothing if there is no such file. Throws IoError where it cannot be read, DataError where it is no such record.
[[nodiscard]] std::optional<HistorySummary> read_history(const std::filesystem::path& file);

/// "keras_mnist, 10 epochs, 2 workers; last epoch: accuracy 0.5396, loss 2.1198"
[[nodiscard]] std::string describe(const HistorySummary& summary);

}  // namespace lockstep
