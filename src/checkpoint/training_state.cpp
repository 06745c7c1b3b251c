// The state as JSON, in words that a person who opens the file understands.
#include "checkpoint/training_state.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int version = 1;

/// JSON knows neither NaN nor infinity. Finite numbers are written with all the digits that make them unique.
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
  throw DataError("'" + word + "' is no number");
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

Json to_json(const EpochRecord& record) {
  return {{"epoch", record.epoch},
          {"logs", to_json(record.logs)},
          {"seconds", to_json(record.seconds)},
          {"images_per_second", to_json(record.images_per_second)}};
}

EpochRecord record_of(const Json& json) {
  return {json.at("epoch").get<int>(), numbers_of(json.at("logs")), number_of(json.at("seconds")),
          number_of(json.at("images_per_second"))};
}

/// The arrays stand outside of the JSON, one after another; here only how many there are.
KeptValues callback_of(const Json& json, const std::vector<SavedTensor>& arrays, std::size_t& next) {
  KeptValues kept{numbers_of(json.at("numbers")), {}};
  const auto count = json.at("arrays").get<std::size_t>();
  if (count > arrays.size() - next) throw DataError("an array of a callback is missing");
  for (std::size_t i = 0; i < count; ++i) kept.arrays.push_back(arrays[next++]);
  return kept;
}

}  // namespace

SavedState to_saved_state(const TrainingState& state) {
  SavedState saved;
  Json history = Json::array();
  for (const EpochRecord& record : state.history.epochs) history.push_back(to_json(record));
  Json callbacks = Json::array();
  for (const KeptValues& kept : state.callbacks) {
    callbacks.push_back({{"numbers", to_json(kept.numbers)}, {"arrays", kept.arrays.size()}});
    saved.arrays.insert(saved.arrays.end(), kept.arrays.begin(), kept.arrays.end());
  }
  const Json json = {{"version", version},
                     {"epoch", state.epoch},
                     {"step", state.step},
                     {"stopped", state.stopped},
                     {"learning_rate", to_json(state.learning_rate)},
                     {"epoch_so_far",
                      {{"loss_sum", to_json(state.loss_sum)},
                       {"correct", to_json(state.correct)},
                       {"count", to_json(state.count)},
                       {"seconds", to_json(state.seconds)}}},
                     {"history", history},
                     {"numbers", to_json(state.numbers)},
                     {"callbacks", callbacks},
                     {"replicas", state.replicas},
                     {"job", state.job},
                     {"made_by", state.made_by}};
  saved.text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return saved;
}

TrainingState training_state_from(const SavedState& saved, const std::string& source) {
  try {
    const Json json = Json::parse(saved.text);
    if (const int found = json.at("version").get<int>(); found != version) {
      throw DataError("it is of version " + std::to_string(found) + ", but this Lockstep reads version " +
                      std::to_string(version));
    }
    TrainingState state;
    state.epoch = json.at("epoch").get<int>();
    state.step = json.at("step").get<std::int64_t>();
    if (state.epoch < 0 || state.step < 0) throw DataError("its place in the epoch is negative");
    state.stopped = json.at("stopped").get<bool>();
    state.learning_rate = number_of(json.at("learning_rate"));
    const Json& so_far = json.at("epoch_so_far");
    state.loss_sum = number_of(so_far.at("loss_sum"));
    state.correct = number_of(so_far.at("correct"));
    state.count = number_of(so_far.at("count"));
    state.seconds = number_of(so_far.at("seconds"));
    for (const Json& record : json.at("history")) state.history.epochs.push_back(record_of(record));
    state.numbers = numbers_of(json.at("numbers"));
    std::size_t next = 0;
    for (const Json& kept : json.at("callbacks")) {
      state.callbacks.push_back(callback_of(kept, saved.arrays, next));
    }
    state.replicas = json.at("replicas").get<int>();
    state.job = json.at("job").get<std::map<std::string, std::string>>();
    state.made_by = json.at("made_by").get<std::map<std::string, std::string>>();
    return state;
  } catch (const Json::exception& error) {
    throw DataError(source + ": its training state cannot be read (" + error.what() + "); use an earlier backup.");
  } catch (const DataError& error) {
    throw DataError(source + ": its training state cannot be read (" + error.what() + "); use an earlier backup.");
  }
}

}  // namespace lockstep
