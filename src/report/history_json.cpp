// See history_json.hpp.
#include "report/history_json.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;  // keeps the most important entries first for human readers

Json to_json(const NamedValues& record) {
  Json json = Json::object();
  for (const auto& [name, value] : record) {
    std::visit([&json, &key = name](const auto& plain) { json[key] = plain; }, value);
  }
  return json;
}

Json to_json(const GradientCounts& gradients) {
  Json staleness = Json::object();
  for (std::size_t i = 0; i < gradients.by_staleness.size(); ++i) {
    const bool is_last = i == GradientCounts::bounds.size();
    staleness[is_last ? "more" : std::to_string(GradientCounts::bounds[i])] = gradients.by_staleness[i];
  }
  return {{"applied", gradients.applied()}, {"dropped", gradients.dropped}, {"staleness", std::move(staleness)}};
}

Json to_json(const EpochRecord& epoch) {
  Json json = {{"epoch", epoch.epoch}};
  for (const auto& [name, value] : epoch.logs) json[name] = value;
  json["seconds"] = epoch.seconds;
  json["examples_per_second"] = epoch.examples_per_second;
  for (const GradientCounts& each : epoch.gradients) json["gradients_of_workers"].push_back(to_json(each));
  return json;
}

Json to_json(const RunTiming& timing) {
  Json json = {{"seconds_to_first_step", timing.seconds_to_first_step},
               {"peak_memory_mb", timing.peak_memory_mb},
               {"steps", timing.steps},
               {"backups", timing.backups},
               {"skipped_backups", timing.skipped_backups},
               {"ms_per_backup", timing.ms_per_backup},
               {"profile_ms_per_step", timing.profile_ms_per_step},
               {"operations_ms_per_step", timing.operations_ms_per_step}};
  return json;
}

Json to_json(const GenerationRecord& record) {
  return {{"generation", record.generation},
          {"ranks", record.ranks},
          {"began", record.began},
          {"ended", record.ended},
          {"reason", record.reason}};
}

}  // namespace

std::string history_json(const RunReport& report) {
  Json json = {
      {"model", report.model}, {"file", report.file}, {"iteration", report.iteration}, {"epochs", Json::array()}};
  for (const EpochRecord& epoch : report.history.epochs) json["epochs"].push_back(to_json(epoch));
  if (!report.evaluation.empty()) json["evaluation"] = report.evaluation;
  json["config"] = to_json(report.config);
  json["world"] = to_json(report.world);
  json["versions"] = to_json(report.versions);
  json["timing"] = to_json(report.timing);
  for (const GenerationRecord& each : report.generations) json["generations"].push_back(to_json(each));
  // nlohmann/json writes NaN and infinity as null.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
