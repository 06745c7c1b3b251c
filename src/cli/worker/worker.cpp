// See worker.hpp. The job is a JSON file: python/lockstep/_job.py writes it.
#include "cli/worker/worker.hpp"

#include "cli/model_settings.hpp"
#include "cli/worker/caller_callback.hpp"
#include "cli/worker/caller_channel.hpp"
#include "cli/worker/inherited_dataset.hpp"
#include "core/environment.hpp"
#include "core/parse_number.hpp"
#include "metrics/metric_registry.hpp"
#include "options/read_value.hpp"
#include "training/model_parts.hpp"
#include "training/parse_or_exit.hpp"

#include <lockstep/lockstep.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using json = nlohmann::json;

constexpr const char* worker_program = "lockstep worker";

struct WorkerOptions {
  std::filesystem::path job;
  int channel = -1;
};

json read_job(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("cannot read --job {}; the Python package writes it", path.string()));
  json job = json::parse(file, nullptr, false);
  if (!job.is_object()) throw UsageError(fmt::format("--job {} holds no JSON object", path.string()));
  if (job.value("version", 0) != CallerChannel::version) {
    throw UsageError(
        fmt::format("the Python package and the command lockstep have different versions; reinstall "
                    "the package, or take the other command off PATH"));
  }
  return job;
}

/// The names of loss and metrics in logs, in the order of what Keras' evaluate() returns.
json names_in_order(const std::vector<OutputOptions>& outputs) {
  json names = json::array({"loss"});
  const bool has_several = outputs.size() > 1;
  const auto prefix = [&](const OutputOptions& output) { return has_several ? output.output + "_" : std::string(); };
  for (const OutputOptions& output : outputs) {
    if (has_several) names.push_back(prefix(output) + "loss");
  }
  for (const auto list : {&OutputOptions::metrics, &OutputOptions::weighted_metrics}) {
    for (const OutputOptions& output : outputs) {
      for (const Metric& metric : output.*list) names.push_back(prefix(output) + std::string(keras_name(metric)));
    }
  }
  return names;
}

/// A caller on one rank of a world, and what it asks for.
class Worker {
 public:
  Worker(const json& job, const WorkerOptions& settings, const Options& options)
      : job_(job), options_(options), strategy_(options) {
    if (!strategy_.is_chief() || settings.channel < 0) return;
    channel_.emplace(settings.channel, job.value("temporary", ""));
    const auto generation = parse_number<int>(value_of(current_environment(), "LOCKSTEP_GENERATION"));
    channel_->send({{"event", "hello"},
                    {"version", CallerChannel::version},
                    {"generation", generation.value_or(0)},
                    {"workers", strategy_.num_workers()}});
  }

  void run() {
    const auto kind = job_.at("kind").get<std::string>();
    if (kind == "check") {
      const auto task = job_.at("task").get<std::string>();
      static_cast<void>(load(task == "train", task != "predict"));
    }
    if (kind == "fit") fit();
    if (kind == "evaluate") evaluate();
    if (kind == "predict") predict();
  }

 private:
  /// The compile options are the file's. Without an optimizer in use, none needs memory.
  [[nodiscard]] Model load(bool trains, bool computes_loss = true) {
    return strategy_.load_model(job_.at("model").get<std::string>(), [&](const Architecture&, const auto& saved) {
      if (!computes_loss) return CompileOptions{.loss = MeanSquaredError()};  // accepts outputs of any shape
      if (!saved) throw UsageError("the model is not compiled; call model.compile(optimizer, loss) first");
      if (!saved->refusals.first().empty()) throw DataError(saved->refusals.first());
      CompileOptions chosen = static_cast<const CompileOptions&>(*saved);
      if (!trains) chosen.optimizer = SGD();
      return chosen;
    });
  }

  [[nodiscard]] Dataset read(const char* name, const Model& model) const {
    Dataset data = map_dataset(job_.at(name), name == std::string("data") ? "the data" : "the validation data");
    if (data.size() > 0 && !job_.at(name).at("y").is_null()) {
      convert_targets(data, model.compile_options().value(), model.architecture());
    }
    return data;
  }

  void send(const json& event) {
    if (channel_) channel_->send(event);
  }

  void fit() {
    Model model = load(true);
    ModelParts& parts = parts_of(model);
    Dataset data = read("data", model);
    std::optional<Dataset> validation;
    if (!job_.at("validation").is_null()) validation = read("validation", model);
    std::vector<Dataset*> refilled;
    if (data.is_refilled) refilled.push_back(&data);
    if (validation && validation->is_refilled) refilled.push_back(&*validation);
    const int state = job_.at("state").get<int>();
    CallerCallback caller(parts, channel_ ? &*channel_ : nullptr,
                          {.callbacks = job_.at("callbacks").get<std::string>(),
                           .waits_for_batches = job_.at("waits_for_batches").get<bool>(),
                           .state_descriptor = job_.at("shows_weights").get<bool>() ? state : -1,
                           .refilled = std::move(refilled)});
    const char* event = "done";
    try {
      static_cast<void>(model.fit(data, {.epochs = options_.epochs,
                                         .steps_per_epoch = options_.steps_per_epoch,
                                         .validation_data = validation ? &*validation : nullptr,
                                         .validation_split = job_.at("validation_split").get<double>(),
                                         .validation_freq = job_.at("validation_freq").get<int>(),
                                         .initial_epoch = job_.at("initial_epoch").get<int>(),
                                         .callbacks = {std::move(caller), BackupAndRestore(options_)},
                                         .shuffle = job_.at("shuffle").get<bool>(),
                                         .class_weight = job_.at("class_weight").get<std::map<int, double>>()}));
    } catch (const Interrupted&) {
      event = "interrupted";
    }
    parts.run_context->keep_backups();  // the caller removes them when its callbacks have returned
    const bool has_state = write_state(parts, state);
    json last = describe(model, {});
    last.update({{"event", event},
                 {"state", has_state},
                 {"profile_ms_per_step", parts.session.report().timing.profile_ms_per_step}});
    send(last);
    // The caller of a job that it interrupted hangs up, which ends this process.
    if (event == std::string("interrupted") && channel_) {
      while (true) static_cast<void>(channel_->receive([&] { parts.run_context->report_busy(); }));
    }
  }

  void evaluate() {
    Model model = load(false);
    json event = describe(model, model.evaluate(read("data", model)));
    event["event"] = "result";
    event["names"] = names_in_order(parts_of(model).model.compiled().outputs);
    send(event);
  }

  void predict() {
    Model model = load(false, false);
    const Dataset data = map_dataset(job_.at("data"), "the data");
    const std::vector<std::vector<float>> outputs = model.predict_outputs(data);
    std::vector<float> all;  // one output after the other
    json shapes = json::array();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      all.insert(all.end(), outputs[i].begin(), outputs[i].end());
      std::vector<std::int64_t> shape{static_cast<std::int64_t>(data.size())};
      for (const std::int64_t extent : model.architecture().output_shape(i).extents()) shape.push_back(extent);
      shapes.push_back(shape);
    }
    if (channel_) write_descriptor(job_.at("outputs").get<int>(), std::as_bytes(std::span(all)));
    send({{"event", "result"}, {"shapes", shapes}});
  }

  const json& job_;
  const Options& options_;
  MultiWorkerMirroredStrategy strategy_;
  std::optional<CallerChannel> channel_;
};

}  // namespace

void work_for_caller(std::span<const std::string> args) {
  WorkerOptions settings;
  const std::vector<ProgramOption> rows{
      {.name = "job",
       .metavar = "FILE",
       .help = "what to do, as JSON",
       .shown_default = "required",
       .set = [&settings](const OptionValue& given) { settings.job = given.value; }},
      {.name = "channel",
       .metavar = "DESCRIPTOR",
       .help = "an inherited socket to the caller",
       .shown_default = "none",
       .set = [&settings](const OptionValue& given) { settings.channel = read_whole(given, 0); }},
  };
  const Options options =
      parse_or_exit(args, {.model_dir = {}, .program = worker_program}, rows,
                    {.sentence = "Trains, evaluates or predicts for the Python package, which starts it"});
  if (settings.job.empty()) throw UsageError("--job is missing; the Python package starts this command");
  const json job = read_job(settings.job);
  Worker(job, settings, options).run();
}

}  // namespace lockstep
