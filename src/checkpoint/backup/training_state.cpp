// See training_state.hpp. The state is JSON with readable names.
#include "checkpoint/backup/training_state.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <exception>
#include <map>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int version = 3;

/// JSON has neither NaN nor infinity, so these become strings. Finite numbers are written with enough digits to
/// round-trip.
Json to_json(double number) {
  if (std::isfinite(number)) return number;
  if (std::isnan(number)) return "nan";
  return number > 0 ? "inf" : "-inf";
}

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto word = json.get<std::string>();
  if (word == "nan") return std::nan("");
  if (word == "inf") return HUGE_VAL;
  if (word == "-inf") return -HUGE_VAL;
  throw DataError(fmt::format("'{}' is not a number", word));
}

Json to_json(const std::vector<double>& numbers) {
  Json json = Json::array();
  for (const double number : numbers) json.push_back(to_json(number));
  return json;
}

Json to_json(const std::map<std::string, double>& numbers) {
  Json json = Json::object();
  for (const auto& [name, value] : numbers) json[name] = to_json(value);
  return json;
}

std::map<std::string, double> numbers_of(const Json& json) {
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : json.items()) numbers[name] = number_of(value);
  return numbers;
}

Json to_json(const std::vector<GradientCounts>& gradients) {
  Json all = Json::array();
  for (const GradientCounts& each : gradients)
    all.push_back(Json::array({each.by_staleness, each.total_staleness, each.dropped}));
  return all;
}

std::vector<GradientCounts> gradients_of(const Json& json) {
  std::vector<GradientCounts> gradients;
  for (const Json& each : json) {
    GradientCounts& its = gradients.emplace_back();
    its.by_staleness = each.at(0).get<decltype(its.by_staleness)>();
    its.total_staleness = each.at(1).get<std::uint64_t>();
    its.dropped = each.at(2).get<std::uint64_t>();
  }
  return gradients;
}

Json to_json(const EpochRecord& record) {
  return {{"epoch", record.epoch},
          {"logs", to_json(record.logs)},
          {"seconds", to_json(record.seconds)},
          {"examples_per_second", to_json(record.examples_per_second)},
          {"gradients", to_json(record.gradients)}};
}

EpochRecord record_of(const Json& json) {
  return {json.at("epoch").get<int>(), numbers_of(json.at("logs")), number_of(json.at("seconds")),
          number_of(json.at("examples_per_second")), gradients_of(json.value("gradients", Json::array()))};
}

/// The JSON holds only the number of the callback's arrays. Their values are the next ones in `arrays`.
CallbackState callback_of(const Json& json, const std::vector<NamedTensor>& arrays, std::size_t& next) {
  CallbackState state{numbers_of(json.at("numbers")), json.value("texts", std::map<std::string, std::string>()), {}};
  const auto count = json.at("arrays").get<std::size_t>();
  if (count > arrays.size() - next) throw DataError("an array of a callback is missing");
  for (std::size_t i = 0; i < count; ++i) state.arrays.push_back(arrays[next++]);
  return state;
}

DataError unreadable(const std::string& source, const std::exception& error) {
  return DataError(
      fmt::format("{}: its training state cannot be read ({}); use an earlier backup", source, error.what()));
}

/// Throws DataError or Json::exception.
TrainingState state_of(const Json& json, const std::vector<NamedTensor>& arrays) {
  TrainingState state;
  state.epoch = json.at("epoch").get<int>();
  state.step = json.at("step").get<std::int64_t>();
  if (state.epoch < 0 || state.step < 0) throw DataError("its epoch or step is negative");
  state.stop_training = json.at("stop_training").get<bool>();
  state.learning_rate = number_of(json.at("learning_rate"));
  const Json& partial_epoch = json.at("partial_epoch");
  state.loss_sum = number_of(partial_epoch.at("loss_sum"));
  state.num_examples = number_of(partial_epoch.at("num_examples"));
  for (const Json& sum : partial_epoch.at("metric_sums")) state.metric_sums.push_back(number_of(sum));
  state.seconds = number_of(partial_epoch.at("seconds"));
  state.gradients = gradients_of(partial_epoch.value("gradients", Json::array()));
  for (const Json& record : json.at("history")) state.history.epochs.push_back(record_of(record));
  state.tracked = numbers_of(json.at("tracked"));
  std::size_t next = 0;
  for (const Json& tracked : json.at("callbacks")) {
    state.callbacks.push_back(callback_of(tracked, arrays, next));
  }
  state.batch_norm_replicas = json.at("batch_norm_replicas").get<int>();
  state.job = json.at("job").get<std::string>();
  state.job_settings = json.at("job_settings").get<std::map<std::string, std::string>>();
  state.provenance = json.at("provenance").get<std::map<std::string, std::string>>();
  return state;
}

}  // namespace

SerializedTrainingState serialize_training_state(const TrainingState& state) {
  SerializedTrainingState saved;
  Json history = Json::array();
  for (const EpochRecord& record : state.history.epochs) history.push_back(to_json(record));
  Json callbacks = Json::array();
  for (const CallbackState& callback : state.callbacks) {
    Json& written = callbacks.emplace_back(Json{{"numbers", to_json(callback.numbers)}});
    if (!callback.texts.empty()) written["texts"] = callback.texts;
    written["arrays"] = callback.arrays.size();
    saved.arrays.insert(saved.arrays.end(), callback.arrays.begin(), callback.arrays.end());
  }
  const Json json = {{"version", version},
                     {"epoch", state.epoch},
                     {"step", state.step},
                     {"stop_training", state.stop_training},
                     {"learning_rate", to_json(state.learning_rate)},
                     {"partial_epoch",
                      {{"loss_sum", to_json(state.loss_sum)},
                       {"num_examples", to_json(state.num_examples)},
                       {"metric_sums", to_json(state.metric_sums)},
                       {"seconds", to_json(state.seconds)},
                       {"gradients", to_json(state.gradients)}}},
                     {"history", history},
                     {"tracked", to_json(state.tracked)},
                     {"callbacks", callbacks},
                     {"batch_norm_replicas", state.batch_norm_replicas},
                     {"job", state.job},
                     {"job_settings", state.job_settings},
                     {"provenance", state.provenance}};
  saved.text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return saved;
}

TrainingState deserialize_training_state(const SerializedTrainingState& saved, const std::string& source) {
  try {
    const Json json = Json::parse(saved.text);
    if (const int found = json.at("version").get<int>(); found != version) {
      throw UsageError(
          fmt::format("{} is a backup of another version of Lockstep: its format is {}, this one's is {}; "
                      "finish the job with the version that began it, or start over with --resume never",
                      source, found, version));
    }
    return state_of(json, saved.arrays);
  } catch (const Json::exception& error) {
    throw unreadable(source, error);
  } catch (const DataError& error) {
    throw unreadable(source, error);
  }
}

}  // namespace lockstep
