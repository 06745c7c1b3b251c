// See rank_model.hpp.
#include "session/rank_model.hpp"

#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "graph/lower.hpp"
#include "layers/layer_registry.hpp"
#include "optimizers/optimizer_registry.hpp"
#include "options/option_words.hpp"
#include "parallel/describe_kernels.hpp"
#include "parallel/describe_sharding.hpp"
#include "session/read_on_chief.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace lockstep {

namespace {

/// The model's variables in Keras' order; `take_values(parameter, index)` gives their values.
template <typename TakeValues>
std::vector<NamedTensor> variables_of(const Architecture& architecture, TakeValues take_values) {
  std::vector<NamedTensor> variables;
  for (const LayerInfo& layer : architecture.layers()) {
    for (const ParameterInfo& parameter : layer.parameters) {
      variables.push_back(
          {layer.name + "/" + parameter.name, parameter.shape, take_values(parameter, variables.size())});
    }
  }
  return variables;
}

std::vector<NamedTensor> initial_values(const Architecture& architecture, std::uint64_t seed) {
  return variables_of(architecture, [seed](const ParameterInfo& parameter, std::size_t index) {
    std::vector<float> values(static_cast<std::size_t>(parameter.shape.elements()));
    initialize(parameter, seed, index, values);
    return values;
  });
}

/// Replaces the values of `variables` by the file's, and keeps the model's names.
std::vector<NamedTensor> with_values_from(std::vector<NamedTensor> variables, const ModelData& saved) {
  for (std::size_t i = 0; i < variables.size(); ++i) variables[i].values = saved.weights[i].values;
  return variables;
}

void add_values(Digest& digest, std::span<const float> values) {
  digest.add(values.data(), values.size() * sizeof(float));
}

}  // namespace

RankModel::RankModel(RunContext& run_context, Architecture architecture)
    : run_context_(run_context),
      architecture_(std::move(architecture)),
      batch_norm_replicas_(run_context_.batch_norm_replicas()),
      values_(initial_values(architecture_, run_context_.options().seed)) {
  if (run_context_.options().initial_weights.empty()) return;
  const LoadedModel file = read_model_file(run_context_, run_context_.options().initial_weights, &architecture_);
  check_weights(file.path, file.model.weights, architecture_);
  values_ = with_values_from(std::move(values_), file.model);
  add_to_origin(file);
}

CompiledModel& RankModel::compiled() const {
  if (!compiled_) throw UsageError("the model is not compiled yet; call model.compile(...) first");
  return *compiled_;
}

std::optional<CompileOptions> RankModel::compile_options() const {
  return compiled_ ? std::optional(compiled_->options) : std::nullopt;
}

void RankModel::compile(const CompileOptions& options) {
  run_context_.launcher().progress().reset_pace();
  if (compiled_) values_ = weights();
  run_context_.writer().wait();  // the job may read the arenas
  compiled_.reset();
  compiled_ =
      std::make_unique<CompiledModel>(run_context_, architecture_, options, batch_norm_replicas_, restored_sharding_);
  ++compilation_;
  compiled_->write_initial_slots();
  load_arenas();
  run_context_.report_busy();
  if (run_context_.world().is_chief()) {
    for (const std::string& warning : run_context_.backend().warnings(compiled_->plan().graph)) log_warning(warning);
  }
  if (run_context_.prints() && run_context_.options().verbose > 1) run_context_.print_text(kernels_summary());
}

bool RankModel::prepare_to_train(const Batch& batch) {
  CompiledModel& model = compiled();
  const std::size_t batch_size = model.batch_size_of(batch);
  if (is_tensor_parallel() && batch_size != model.steps.front()->batch_size) {
    run_context_.writer().wait();  // its job may read the arenas
    model.lay_out_again(batch_size);
    ++compilation_;
  }
  CompiledStep* const before = std::exchange(model.training, &model.step_for(batch_size));
  if (before == model.training) return false;
  run_context_.launcher().progress().reset_pace();
  return true;
}

std::vector<NamedTensor> RankModel::weights() const {
  if (!compiled_) return values_;
  std::vector<std::vector<float>> values = compiled_->weights();
  return variables_of(architecture_, [&](const ParameterInfo&, std::size_t index) { return std::move(values[index]); });
}

void RankModel::set_weights(const std::vector<NamedTensor>& weights) {
  std::vector<NamedTensor> expected = this->weights();
  if (weights.size() != expected.size()) {
    throw UsageError(
        fmt::format("the model has {} weights, but {} were passed to set_weights()", expected.size(), weights.size()));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool fits = weights[i].shape == expected[i].shape &&
                      weights[i].values.size() == static_cast<std::size_t>(expected[i].shape.elements());
    if (!fits) {
      throw UsageError("weight '" + expected[i].name + "' has shape " + expected[i].shape.to_string() +
                       ", but set_weights() was called with shape " + weights[i].shape.to_string());
    }
    expected[i].values = weights[i].values;
  }
  values_ = std::move(expected);
  if (compiled_) load_arenas();
}

void RankModel::load_arenas() {
  compiled_->set_weights(values_);
  values_.clear();
}

void RankModel::load_weights(const ModelData& saved) { set_weights(with_values_from(weights(), saved)); }

void RankModel::add_to_origin(const LoadedModel& file) {
  origin_files_ += file.path + '\n';
  if (!file.model.compile_state) return;
  for (const auto& slot : file.model.compile_state->slots) add_values(loaded_state_, slot.values);
}

std::string RankModel::origin() const {
  Digest digest = loaded_state_;
  compiled().visit_weights([&digest](std::span<const float> values) { add_values(digest, values); });
  const std::uint64_t iteration = compiled().iteration;
  digest.add(&iteration, sizeof iteration);
  return digest.to_string();
}

void RankModel::load(const LoadedModel& file) {
  const ModelData& saved = file.model;
  load_weights(saved);
  if (!saved.compile_state || keras_name(saved.compile_state->optimizer) != keras_name(optimizer())) return;
  if (slots_of(saved.compile_state->optimizer) != slots_of(optimizer())) return;  // other options, other slots
  if (const auto problem = find_nonfinite(saved.compile_state->slots)) {
    throw DataError(fmt::format("{}: optimizer state {}; use an earlier copy, or train with another --optimizer",
                                file.path, *problem));
  }
  compiled().write_slots(saved.compile_state->slots);
  compiled().iteration = static_cast<std::uint64_t>(saved.compile_state->iteration);
}

bool RankModel::has_moving_averages() const {
  return std::ranges::any_of(architecture_.layers(), [](const LayerInfo& layer) {
    return is_trainable(layer.layer) && !std::ranges::all_of(layer.parameters, &ParameterInfo::trainable);
  });
}

void RankModel::restore_parallelism(int batch_norm_replicas, const std::string& sharding) {
  const bool changes_replicas = adopt_batch_norm_replicas(static_cast<std::size_t>(batch_norm_replicas));
  const bool keeps_sharding = !sharding.empty() && run_context_.options().parallelism == Parallelism::automatic;
  const bool changes_sharding = keeps_sharding && sharding != sharding_provenance();
  if (!changes_replicas && !changes_sharding) return;
  if (keeps_sharding) {
    const auto code = sharding.find(' ');
    restored_sharding_ = code == std::string::npos ? "-" : sharding.substr(code + 1);
  }
  compile(CompileOptions(compiled().options));
  if (changes_sharding) {
    run_context_.print(fmt::format("Parallelism: {}, as in the backup, instead of the choice above",
                                   parallelism_name(compiled().sharding)));
  }
}

bool RankModel::adopt_batch_norm_replicas(std::size_t wanted) {
  if (wanted == batch_norm_replicas_ || !has_moving_averages()) return false;
  const bool has_too_many_workers = wanted < static_cast<std::size_t>(run_context_.training_workers());
  const bool is_served = run_context_.tasks() != nullptr;  // servers serve models as they were compiled
  if (!has_too_many_workers && !is_served) {
    batch_norm_replicas_ = wanted;
    return true;
  }
  if (run_context_.world().is_chief()) {
    log_warning(fmt::format(
        "the replicas of BatchNormalization were {} when the backup was written and are {} now, because {}", wanted,
        batch_norm_replicas_,
        has_too_many_workers ? std::string("there are more workers")
                             : fmt::format("there are fewer workers; --batch-norm-replicas {} keeps them", wanted)));
  }
  return false;
}

std::string RankModel::sharding_summary() const {
  if (!compiled_ || run_context_.world().size() == 1 || run_context_.options().parallelism == Parallelism::data)
    return {};
  const std::string workers = fmt::format("{} workers", run_context_.world().size());
  const ParallelismChoice& choice = compiled_->choice;
  const std::string name = parallelism_name(choice.sharding);
  return "Parallelism: " + name + ", " + workers + " (" + choice.reason + "):\n" + to_text(compiled_->layers);
}

std::string RankModel::kernels_summary() const {
  if (run_context_.backend().device_streams() != nullptr) return "";  // trials have their arenas in the host's memory
  const CompiledModel& model = compiled();
  return describe_kernels(model.plan(),
                          measure_operations(run_context_.backend(), model.plan(), model.options.optimizer,
                                             model.plan().graph.capacity, run_context_.world().size()),
                          model.plan().graph.capacity);
}

std::string RankModel::sharding_provenance() const {
  const auto& sharding = compiled().sharding;
  return parallelism_name(sharding) + (sharding ? " " + sharding->code() : "");
}

std::string RankModel::describe_sharding(const std::string& sharding, const std::string& workers) const {
  const int ranks = parse_number<int>(workers).value_or(0);
  const Options& run = run_context_.options();
  return lockstep::describe_sharding(sharding, lower(architecture_, compiled().options, run.precision, run.input_scale),
                                     ranks);
}

std::map<std::string, std::string> RankModel::provenance() const {
  std::map<std::string, std::string> provenance = run_context_.backend().libraries();
  if (const std::string set = run_context_.backend().instruction_set(); !set.empty())
    provenance["instruction set"] = set;
  provenance["device"] = run_context_.backend().describe();
  provenance["number of workers"] = std::to_string(run_context_.training_workers());
  provenance["parallelism"] = sharding_provenance();
  provenance["gradient compression"] = to_string(run_context_.options().gradient_compression);
  provenance["plan"] = compiled().plan_digest;
  std::string& kernels = provenance["kernels"];
  for (const std::string& choice : compiled().plan().kernel_choices())
    kernels += (kernels.empty() ? "" : "; ") + choice;
  return provenance;
}

}  // namespace lockstep
