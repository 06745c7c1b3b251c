// See history_summary.hpp.
#include "cli/history_summary.hpp"

#include "core/format_number.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {
namespace {

using nlohmann::json;

bool is_log(const std::string& key) {
  return key != "epoch" && key != "seconds" && key != "examples_per_second" && key != "learning_rate";
}

}  // namespace

std::optional<HistorySummary> read_history(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("cannot read " + file.string() + "; check its permissions");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) throw DataError(file.string() + " is damaged: it is not JSON");
  const auto epochs = document.is_object() ? document.find("epochs") : document.end();
  if (epochs == document.end() || !epochs->is_array()) {
    throw DataError(file.string() + " is not the record of a run: it has no list of epochs");
  }
  HistorySummary summary;
  summary.epochs = epochs->size();
  if (const auto found = document.find("model"); found != document.end() && found->is_string()) {
    summary.program = found->get<std::string>();
  }
  if (const auto found = document.find("file"); found != document.end() && found->is_string()) {
    summary.file = found->get<std::string>();
  }
  if (const auto found = document.find("iteration"); found != document.end() && found->is_number_unsigned())
    summary.iteration = found->get<std::uint64_t>();
  if (const auto config = document.find("config"); config != document.end() && config->is_object()) {
    if (const auto scale = config->find("input_scale"); scale != config->end() && scale->is_number())
      summary.input_scale = scale->get<double>();
  }
  if (const auto world = document.find("world"); world != document.end() && world->is_object()) {
    const auto workers = world->find("workers");
    if (workers != world->end() && workers->is_number_unsigned()) summary.workers = workers->get<std::uint64_t>();
  }
  const auto read_logs = [&](const nlohmann::json& logs, std::map<std::string, double>& read) {
    if (!logs.is_object()) return;
    for (const auto& [key, value] : logs.items()) {
      if (value.is_number() && is_log(key)) read[key] = value.get<double>();
    }
  };
  if (const auto evaluation = document.find("evaluation"); evaluation != document.end())
    read_logs(*evaluation, summary.evaluation);
  if (!epochs->empty()) read_logs(epochs->back(), summary.last_logs);
  return summary;
}

std::optional<HistorySummary> read_history_of(const std::filesystem::path& model,
                                              std::optional<std::uint64_t> iteration) {
  std::optional<HistorySummary> history = read_history(model.parent_path() / "history.json");
  if (!history) return std::nullopt;
  const bool is_of_another_file = !history->file.empty() && history->file != model.filename();
  const bool is_of_another_step = history->iteration && iteration && *history->iteration != *iteration;
  if (is_of_another_file || is_of_another_step) return std::nullopt;
  return history;
}

std::string describe(const HistorySummary& summary) {
  std::string text = summary.program.empty() ? "a run" : summary.program;
  text += ", " + count_of(summary.epochs, "epoch");
  if (summary.workers > 0) text += ", " + count_of(summary.workers, "worker");
  std::string_view separator = "; last epoch: ";
  for (const auto& [name, value] : summary.last_logs) {
    text += fmt::format("{}{} {:.4g}", separator, name, value);
    separator = ", ";
  }
  return text;
}

}  // namespace lockstep
