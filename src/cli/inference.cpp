// See inference.hpp. Neither command writes to a model directory.
#include "cli/inference.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/zip_file.hpp"
#include "cli/check_output.hpp"
#include "cli/follow.hpp"
#include "cli/history_summary.hpp"
#include "cli/model_settings.hpp"
#include "cli/warn_of_backends.hpp"
#include "cluster/launcher/container_init.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "data/npy.hpp"
#include "graph/mixed_precision.hpp"
#include "options/read_value.hpp"
#include "ownership/directory_record.hpp"
#include "report/log_value.hpp"
#include "session/data_digest.hpp"
#include "training/metric_direction.hpp"
#include "training/parse_or_exit.hpp"

#include <lockstep/lockstep.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

Options parse(std::span<const std::string> args, const std::string& program, std::span<const ProgramOption> own,
              const ModelSettings& settings, const std::string& sentence) {
  Options options = parse_or_exit(args, {.model_dir = {}, .program = program}, own, {sentence, false});
  require_model(settings, program);
  require_weights(settings, options);
  require_data_dir(options, program);
  return options;
}

/// Warns if history.json beside the model says that it was trained on bytes of another scale.
void warn_of_other_scale(const std::filesystem::path& model, std::optional<std::uint64_t> iterations,
                         const Options& options) {
  std::optional<HistorySummary> history;
  try {
    history = read_history_of(model, iterations);
  } catch (const Error&) {
    return;  // `lockstep inspect` tells what is wrong with it
  }
  if (!history || !history->input_scale || !options.input_scale || *history->input_scale == *options.input_scale)
    return;
  log_warning(
      fmt::format("{} was trained with --input-scale {:.6g}, and this command has {:.6g}; results are those of "
                  "other inputs",
                  model.string(), *history->input_scale, *options.input_scale));
}

/// Keras scales no bytes. On standard error, since the results are on standard output.
void tell_scale(const std::filesystem::path& file, const Architecture& model, std::optional<std::uint64_t> iterations,
                const Dataset& data, const Options& options) {
  const std::string bytes = describe_bytes(data, options, model);
  if (bytes.empty()) return;
  std::vector<std::string> arrays;
  for (const InputArray& array : data.inputs) {
    if (std::holds_alternative<SharedArray<std::uint8_t>>(array.values)) arrays.push_back(data.label_of(array));
  }
  log_info(fmt::format("{}: {}", fmt::join(arrays, ", "), bytes));
  warn_of_other_scale(file, iterations, options);
  warn_of_second_scale(options, model);
}

/// An .npz file with an array for each output, by its name.
std::vector<std::byte> to_npz(const Architecture& model, const std::vector<std::vector<std::byte>>& arrays) {
  std::vector<ZipMember> members;
  for (std::size_t i = 0; i < arrays.size(); ++i) members.push_back({model.output_name(i) + ".npy", arrays[i]});
  return make_zip(members);
}

/// Whether a file of the data was written within the last minute: the rest of it may be yet to come.
bool may_be_being_written(const std::filesystem::path& data) {
  constexpr double settled_s = 60;
  const auto is_recent = [](const std::filesystem::path& file) {
    struct stat status {};
    return stat(file.c_str(), &status) == 0 &&
           wall_clock_seconds() < static_cast<double>(status.st_mtim.tv_sec) + settled_s;
  };
  return std::ranges::any_of(dataset_files(data), is_recent);
}

/// Tells what is wrong with the test set from damage of a model.
template <typename Work>
void with_test_set(const std::filesystem::path& data, const Work& work) {
  try {
    work();
  } catch (const DataError& error) {
    throw TestSetError(error.what(), may_be_being_written(data));
  }
}

/// Throws UsageError if the path names no data set but, say, a job's models.
void require_test_data(const std::filesystem::path& data) {
  if (!std::filesystem::exists(data))
    throw UsageError(fmt::format("--data-dir is {}, which does not exist; correct the path", data.string()));
  std::string problem;
  if (!std::filesystem::is_directory(data)) {
    if (data.extension() == ".npz") return;
    problem = "which is neither a directory nor a .npz file";
  } else {
    if (!dataset_files(data).empty()) return;
    const std::optional<DirectoryRecord> record = find_record(data);
    problem = record ? "where " + describe(record) + " writes its models" : "which holds no data set";
  }
  throw UsageError(fmt::format("--data-dir is {}, {}; name the test set's file or directory", data.string(), problem));
}

struct EvaluateSettings {
  ModelSettings model;
  std::size_t eval_steps = 0;  ///< batches of the test set; 0: all
};

Dataset first_batches(Dataset data, std::size_t count, const Options& options) {
  const auto batch = static_cast<std::size_t>(options.global_batch_size);
  if (count == 0 || data.size() / batch < count) return data;
  return data.slice(0, count * batch);
}

/// What the values of an evaluation depend on besides the model's weights and the test set, by option.
std::map<std::string, std::string> settings_of(const Model& model, const Options& options) {
  using Json = nlohmann::json;
  const Json compiled = Json::parse(training_config_to_json(*model.compile_options()));
  Json losses{{"loss", compiled.at("loss")}};
  Json metrics{{"metrics", compiled.at("metrics")}};
  if (const Json& weights = compiled.at("loss_weights"); !weights.is_null()) losses["loss_weights"] = weights;
  if (const Json& weighted = compiled.at("weighted_metrics"); !weighted.is_null()) metrics["weighted"] = weighted;
  const bool is_mixed = are_mixed(model.architecture().flattened().layers(), options.precision);
  return {{"--loss", losses.dump()},
          {"--metrics", metrics.dump()},
          {"--clip-probabilities", options.clip_probabilities ? "yes" : "no"},
          {"--precision", is_mixed ? "mixed_bfloat16" : "float32"}};
}

/// On every rank.
Evaluation evaluate_file(MultiWorkerMirroredStrategy& strategy, const EvaluateSettings& settings,
                         const Options& options, const std::filesystem::path& file, bool tells_scale) {
  Dataset test;
  bool made_one_hot = false;
  std::optional<std::uint64_t> iterations;
  Model model = strategy.load_model(file, [&](const Architecture& architecture, const auto& saved) {
    if (saved) iterations = saved->saved_iterations;
    CompileOptions compile_options = resolve_compile_options(settings.model, architecture, saved, false);
    compile_options.optimizer = SGD();  // has no state to allocate
    with_test_set(options.data_dir, [&] {
      test = first_batches(load_test_data(options.data_dir, array_names(architecture)), settings.eval_steps, options);
      check_inputs(test, options, architecture);
      made_one_hot = convert_targets(test, compile_options, architecture);
    });
    return compile_options;
  });
  Evaluation found{.iterations = iterations};
  with_test_set(options.data_dir, [&] { found.logs = model.evaluate(test); });
  for (const auto& [name, value] : found.logs) {
    if (is_upward_log(model.compile_options(), name).value_or(false)) found.upward.insert(name);
  }
  const std::string bytes = describe_bytes(test, options, model.architecture());
  found.test_set = digest_of(test) + (bytes.empty() ? "" : ", " + bytes);
  found.settings = settings_of(model, options);
  found.input_scale = byte_scale_of(test, options, model.architecture());
  if (tells_scale && model.is_chief()) {
    tell_scale(file, model.architecture(), iterations, test, options);
    warn_of_crossentropies(*model.compile_options(), model.architecture(), options.clip_probabilities);
    if (made_one_hot) warn_of_one_hot();
  }
  return found;
}

}  // namespace

void evaluate(std::span<const std::string> args) {
  run_init_if_pid_1();  // an evaluator's container is told to end by SIGTERM
  EvaluateSettings settings;
  ModelSettings& model = settings.model;
  FollowSettings follow;
  std::vector own{model_option(model), loss_option(model), metrics_option(model)};
  own.push_back(
      {.name = "eval-steps",
       .metavar = "N",
       .help = "evaluate on the first N batches of the test set only",
       .shown_default = "all",
       .set = [&settings](const OptionValue& given) { settings.eval_steps = read_whole<std::size_t>(given, 1); }});
  for (ProgramOption& option : follow_options(follow)) own.push_back(std::move(option));
  const std::string program = "lockstep evaluate";
  const Options options = parse_or_exit(args, {.model_dir = {}, .program = program}, own,
                                        {"Evaluates a model, or each new model of a job, on the test set", false});
  require_consistent(follow, model);
  if (follow.directory.empty()) {
    require_model(model, program);
    require_weights(model, options);
  }
  require_data_dir(options, program);
  if (!follow.directory.empty()) require_test_data(options.data_dir);  // before the first model comes
  MultiWorkerMirroredStrategy strategy{options};
  if (!follow.directory.empty()) {
    if (strategy.num_workers() > 1)
      throw UsageError("lockstep evaluate --follow is one process; start it without mpirun");
    follow_job(
        follow,
        [&](const std::filesystem::path& file) { return evaluate_file(strategy, settings, options, file, false); },
        [&] { strategy.report_busy(); });
    return;
  }
  const Logs logs = evaluate_file(strategy, settings, options, model.model, true).logs;
  if (!strategy.is_chief()) return;
  std::cout << printable(describe(logs, "", "\n")) << std::endl;
  require_printed();
  if (!std::isfinite(logs.at("loss"))) {
    throw DataError(
        fmt::format("{}: the loss is {}, because an output of the model is NaN, infinite, or outside of what "
                    "the loss is defined for; look at the outputs (lockstep predict)",
                    model.model.string(), log_value(logs.at("loss"))));
  }
}

void predict(std::span<const std::string> args) {
  ModelSettings settings;
  std::filesystem::path output;
  const ProgramOption output_option{.name = "output",
                                    .metavar = "FILE",
                                    .help =
                                        "float32 of the shape (examples, ...), for numpy.load;\n.npz of a model "
                                        "with several outputs",
                                    .shown_default = "predictions.npy",
                                    .set = [&output](const OptionValue& given) {
                                      output = given.value;
                                      if (output.extension() != ".npy" && output.extension() != ".npz")
                                        refuse(given, "a file name ending in .npy, or in .npz for several outputs");
                                    }};
  const Options options = parse(args, "lockstep predict", std::vector{model_option(settings), output_option}, settings,
                                "Writes a model's outputs for the test set, on every worker of the world");
  MultiWorkerMirroredStrategy strategy{options};
  const auto check_output = [&] {
    if (!strategy.is_chief()) return;
    require_distinct(options, {{"--model", settings.model}}, std::array{NamedFile{"--output", output}});
    require_writable(output);
  };
  if (!output.empty()) check_output();
  Dataset test;
  std::optional<std::uint64_t> iterations;
  Model model = strategy.load_model(settings.model, [&](const Architecture& architecture, const auto& saved) {
    if (saved) {
      iterations = saved->saved_iterations;
      strategy.print("Predictions need no loss, metrics or optimizer, so those of {} were not checked",
                     settings.model.string());
    }
    const char* const extension = architecture.outputs().size() == 1 ? ".npy" : ".npz";
    if (output.empty()) {
      output = std::string("predictions") + extension;
      check_output();
    } else if (output.extension() != extension) {
      throw UsageError(fmt::format("--output is '{}', but the model has {} output{}; name a file that ends in {}",
                                   output.string(), architecture.outputs().size(),
                                   architecture.outputs().size() == 1 ? "" : "s", extension));
    }
    test = load_inputs(options.data_dir, array_names(architecture));
    check_inputs(test, options, architecture);
    return CompileOptions{.loss = MeanSquaredError()};  // not computed; accepts outputs of any shape
  });
  const std::vector<std::vector<float>> outputs = model.predict_outputs(test);
  const Architecture& architecture = model.architecture();
  std::vector<std::vector<std::byte>> arrays;
  std::string described;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::vector<std::int64_t> extents{static_cast<std::int64_t>(test.size())};
    for (const std::int64_t extent : architecture.output_shape(i).extents()) extents.push_back(extent);
    const Shape shape(std::move(extents));
    arrays.push_back(to_npy(shape, outputs[i]));
    if (i > 0) described += i + 1 == outputs.size() ? " and " : ", ";
    if (outputs.size() > 1) described += architecture.output_name(i) + " ";
    described += shape.to_string();
  }
  if (model.is_chief()) {
    tell_scale(settings.model, architecture, iterations, test, options);
    write_file_atomically(output, outputs.size() == 1 ? arrays.front() : to_npz(architecture, arrays), WriteGuard());
  }
  strategy.print("Saved {}, {} {}", output.string(), outputs.size() == 1 ? "an array" : "the arrays", described);
  require_printed();
}

}  // namespace lockstep
