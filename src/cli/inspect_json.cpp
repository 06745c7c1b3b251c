// See inspect_json.hpp.
#include "cli/inspect_json.hpp"

#include <nlohmann/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

json to_json(const Shape& shape) { return std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end()); }

json to_json(const std::vector<NamedTensor>& tensors) {
  json list = json::array();
  for (const NamedTensor& tensor : tensors) {
    const TensorStatistics found = compute_statistics(tensor);
    list.push_back({{"name", tensor.name},
                    {"shape", to_json(tensor.shape)},
                    {"mean", found.mean},
                    {"std", found.standard_deviation},
                    {"min", found.min},
                    {"max", found.max},
                    {"nan", found.nans},
                    {"inf", found.infinities}});
  }
  return list;
}

json to_json(const Architecture& architecture) {
  json layers = json::array();
  for (const LayerInfo& layer : architecture.layers()) {
    layers.push_back(
        {{"name", layer.name}, {"class_name", layer.class_name}, {"output_shape", to_json(layer.output_shape)}});
  }
  return {{"name", architecture.name()},
          {"trainable_parameters", architecture.count_parameters(true)},
          {"non_trainable_parameters", architecture.count_parameters(false)},
          {"layers", layers}};
}

json to_json(const CompileState& training) {
  json losses = keras_name(training.loss);  // of several outputs by their names
  if (!training.outputs.empty()) losses = json::object();
  for (const OutputOptions& output : training.outputs) losses[output.output] = keras_name(output.loss);
  const LearningRate& rate = learning_rate_of(training.optimizer);
  const CompileRefusals& refused = training.refusals;
  json all{{"optimizer", keras_name(training.optimizer)},
           {"learning_rate", rate.at(static_cast<std::uint64_t>(training.iteration))},
           {"learning_rate_schedule", rate.is_constant() ? json() : json(keras_name(rate))},
           {"iteration", training.iteration},
           {"loss", losses},
           {"metrics", names_of_metrics(training, false)},
           {"weighted_metrics", names_of_metrics(training, true)}};
  json not_supported = json::object();
  const auto refuse = [&](const std::string& why, std::initializer_list<const char*> keys) {
    if (why.empty()) return;
    for (const char* key : keys) all[key] = nullptr;
    not_supported[*keys.begin()] = why;
  };
  refuse(refused.optimizer, {"optimizer", "learning_rate"});
  refuse(refused.loss, {"loss"});
  refuse(refused.metrics, {"metrics", "weighted_metrics"});
  if (!not_supported.empty()) all["not_supported"] = not_supported;
  return all;
}

json to_json(const TrainingState& state) {
  json epochs = json::array();
  for (const EpochRecord& record : state.history.epochs) {
    json epoch = {{"epoch", record.epoch}};
    for (const auto& [name, value] : record.logs) epoch[name] = value;
    epochs.push_back(epoch);
  }
  return {{"epoch", state.epoch}, {"step", state.step}, {"stopped", state.stop_training}, {"epochs", epochs}};
}

}  // namespace

json to_json(const InspectedFile& file) {
  json result{{"path", file.path.string()}, {"bytes", file.bytes}, {"model", nullptr}, {"training", nullptr}};
  if (file.stored.iteration) result["training"] = {{"iteration", *file.stored.iteration}};
  if (file.model) result["model"] = to_json(file.model->architecture);
  if (file.model && file.model->compile_state) result["training"] = to_json(*file.model->compile_state);
  result["backup"] = file.backup ? to_json(*file.backup) : json(nullptr);
  result["weights"] = to_json(weights_of(file));
  result["optimizer_state"] = to_json(optimizer_state_of(file));
  const std::string problem = describe_bad_values(file);
  result["problem"] = problem.empty() ? json(nullptr) : json(problem);
  return result;
}

json to_json(const HistorySummary& summary) {
  return {{"program", summary.program},
          {"epochs", summary.epochs},
          {"workers", summary.workers == 0 ? json(nullptr) : json(summary.workers)},
          {"last_epoch", summary.last_logs}};
}

}  // namespace lockstep
