// See compiled_model.hpp. One file, because its functions share the arenas.
#include "session/compiled_model.hpp"

#include "checkpoint/keras/keras_config.hpp"
#include "core/digest.hpp"
#include "graph/lower.hpp"
#include "graph/output_options.hpp"
#include "optimizers/optimizer_registry.hpp"
#include "plan/server_placement.hpp"
#include "session/complete_options.hpp"
#include "session/join_tasks.hpp"
#include "session/recorded_parallelism.hpp"
#include "session/snapshot.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

/// Batch sizes whose steps are kept: training, validation, a test, a prediction, and one to spare.
constexpr std::size_t max_compiled_steps = 5;

/// "Input(28, 28) Dense(10,)": enough for a person to distinguish two models.
std::string outline_of(const Architecture& architecture) {
  std::string outline;
  for (const LayerInfo& layer : architecture.layers()) {
    if (!outline.empty()) outline += ' ';
    outline += layer.class_name + layer.output_shape.to_string();
  }
  return outline;
}

/// Workers and parameter servers exchange nothing within a step.
void refuse_synchronized_layers(const Architecture& architecture) {
  for (const LayerInfo& layer : architecture.layers()) {
    const auto* normalization = std::get_if<BatchNormalization>(&layer.layer);
    if (normalization == nullptr || !normalization->synchronized) continue;
    throw UsageError(fmt::format(
        "'{}' (BatchNormalization) has synchronized=True, but with parameter servers workers exchange no statistics; "
        "train without ps tasks, or leave the option out",
        layer.name));
  }
}

template <typename T>
std::span<T> take(std::span<std::byte>& memory, std::size_t count) {
  constexpr std::size_t line = 64;
  const std::size_t bytes = (count * sizeof(T) + line - 1) / line * line;
  const std::span<T> taken(reinterpret_cast<T*>(memory.data()), count);
  memory = memory.subspan(bytes);
  return taken;
}

std::size_t layout_batch_size(const RunContext& run_context) {
  return std::min(run_context.default_batch_size(), max_layout_batch_size);
}

/// Follows --parallelism; `auto` calibrates. `graph` is lowered but not laid out. Collective.
ParallelismChoice choose_parallelism(RunContext& run_context, const Graph& graph, const Optimizer& optimizer,
                                     std::size_t batch_norm_replicas) {
  const Options& run = run_context.options();
  const CalibrationContext context{.backend = run_context.backend(),
                                   .control = run_context.control(),
                                   .new_communicator = [&] { return run_context.new_communicator(); },
                                   .host_of_rank = run_context.world().host_of_rank(),
                                   .global_batch_size = layout_batch_size(run_context),
                                   .batch_norm_replicas = batch_norm_replicas,
                                   .deterministic = run.deterministic,
                                   .assumed_hardware = run.assumed_hardware,
                                   .sharding_code = run.sharding};
  switch (run.parallelism) {
    case Parallelism::automatic: return calibrate(context, graph, optimizer);
    case Parallelism::tensor: return require_tensor_parallel(context, graph);
    case Parallelism::data: break;
  }
  return {.reason = "requested by --parallelism data"};
}

}  // namespace

CompiledModel::CompiledModel(RunContext& context, const Architecture& model, const CompileOptions& compile_options,
                             std::size_t batch_norm_replicas, const std::string& restored_sharding)
    : run_context(context), architecture(model), options(compile_options) {
  if (const TaskGroup* tasks = run_context.tasks(); tasks != nullptr && tasks->is_serving()) {
    throw UsageError(
        "this model is compiled after the first step, but parameter servers serve the models that were compiled "
        "before; compile all models first");
  }
  const Options& run = run_context.options();
  if (run.learning_rate) replace_learning_rate(options.optimizer, *run.learning_rate);
  if (run_context.tasks() != nullptr) refuse_synchronized_layers(architecture);
  complete(options, architecture);
  if (run.clip_probabilities) clip_probabilities(options);
  outputs = output_options(options, architecture);
  metrics.emplace(outputs);
  Digest digest;
  for (const auto& [what, value] : identity()) {
    run_context.require_equal_on_all_ranks(what, value);
    digest.add(value.c_str(), value.size() + 1);
  }
  digest_ = digest.to_string();
  choose_sharding(batch_norm_replicas, restored_sharding);
  feed = std::make_unique<BatchFeed>(run_context, architecture, batch_norm_replicas, sharding.has_value());
  lay_out(layout_batch_size(run_context));
  if (server != nullptr) run_context.served_models().push_back(this);
}

CompiledModel::~CompiledModel() { std::erase(run_context.served_models(), this); }

KeyValues CompiledModel::identity() const {
  return {{"the model", outline_of(architecture)},
          {"the layers' options", layers_to_json(architecture)},
          {"how the model is compiled", training_config_to_json(options) + describe_clipping(outputs)}};
}

void CompiledModel::choose_sharding(std::size_t batch_norm_replicas, const std::string& restored_sharding) {
  const Options& run = run_context.options();
  graph_ = lower(architecture, options, run.precision, run.input_scale);
  if (graph_.mixed_bfloat16) run_context.backend().require_bfloat16();
  graph_.batch_norm_replicas = batch_norm_replicas;
  // GPUs support only data parallelism: a tensor-parallel job resumes data parallel there.
  const bool restores = run_context.backend().device_streams() == nullptr;
  const auto restored = [&](const std::string& code, const char* where) {
    return ParallelismChoice{.sharding = sharding_from_code(graph_, run_context.world().size(), code), .reason = where};
  };
  if (restores && !restored_sharding.empty()) {
    choice = restored(restored_sharding, "restored from the backup");
  } else if (const std::string code = restores ? recorded_sharding(run_context, digest_) : ""; !code.empty()) {
    choice = restored(code, "as before the restart");
  } else {
    choice = choose_parallelism(run_context, graph_, options.optimizer, batch_norm_replicas);
  }
  sharding = choice.sharding;
}

void CompiledModel::record_parallelism() { record_sharding(run_context, digest_, sharding ? sharding->code() : "-"); }

/// Plans this rank's shard, and makes arenas and the first step.
void CompiledModel::lay_out(std::size_t batch_size) {
  layers = layer_shardings(graph_, sharding, run_context.world().size(), batch_size);
  Plan plan = make_plan(batch_size);
  if (plan_digest.empty()) plan_digest = plan.digest();
  run_context.require_equal_on_all_ranks("the plan", plan.digest());
  communicator = run_context.new_communicator();
  server = dynamic_cast<ServerCommunicator*>(communicator.get());
  ticketed = dynamic_cast<WorkerCommunicator*>(communicator.get());
  if (ticketed != nullptr && !ticketed->has_tickets()) ticketed = nullptr;
  if (run_context.tasks() != nullptr) use_servers(plan);
  allocate(plan);
  if (server != nullptr) plan = server_plan(std::move(plan), server->own_ranges());
  steps.push_back(make_step(batch_size, std::move(plan)));
  if (sharding) shards.emplace(architecture, *sharding, this->plan());
}

Plan CompiledModel::make_plan(std::size_t batch_size) const {
  const Backend& backend = run_context.backend();
  Graph graph = graph_;
  if (sharding) {
    graph = shard_graph(graph_, *sharding, run_context.world().rank(), batch_size, backend);
  } else {
    backend.lay_out(graph, feed->capacity(layout_batch_size(run_context)));
    graph.capacity = feed->capacity(batch_size);
  }
  Plan plan = lockstep::make_plan(std::move(graph), backend.plan_options(run_context.world().size()));
  if (sharding) plan.sharding = sharding->to_string(graph_);
  return plan;
}

std::unique_ptr<CompiledStep> CompiledModel::make_step(std::size_t batch_size, Plan plan) {
  return std::make_unique<CompiledStep>(batch_size, std::move(plan), run_context.backend(), arenas,
                                        local.gradients.data(), *communicator);
}

std::size_t CompiledModel::batch_size_of(const Batch& batch) const {
  return std::max(batch.size, batch.batch_size > 0 ? batch.batch_size : steps.front()->batch_size);
}

CompiledStep& CompiledModel::step_for(std::size_t batch_size) {
  const auto first = steps.begin();
  if (sharding || batch_size == (*first)->batch_size) return **first;
  const auto is_of_size = [&](const auto& step) { return step->batch_size == batch_size; };
  if (const auto found = std::find_if(first, steps.end(), is_of_size); found != steps.end()) {
    std::rotate(found, found + 1, steps.end());
  } else {
    const auto is_idle = [&](const auto& step) { return step.get() != training; };
    if (steps.size() == max_compiled_steps) steps.erase(std::find_if(first + 1, steps.end(), is_idle));
    steps.push_back(make_step(batch_size, make_plan(batch_size)));
  }
  return *steps.back();
}

void CompiledModel::lay_out_again(std::size_t batch_size) {
  synchronize();
  const auto for_each_array = [this](const auto& visit) {
    const auto variables = static_cast<std::size_t>(plan().graph.metrics_parameter());
    for (std::size_t v = 0; v < variables; ++v) {
      const int slots = plan().graph.parameters[v].info.trainable ? num_slots(options.optimizer) : 0;
      for (std::size_t array = 0; array <= static_cast<std::size_t>(slots); ++array) visit(v, array);
    }
  };
  std::vector<std::vector<float>> values;  // of this rank's shards, in Keras' layout
  for_each_array([&](std::size_t variable, std::size_t array) {
    const Shape& shape = plan().graph.parameters[variable].info.shape;
    values.emplace_back(static_cast<std::size_t>(shape.elements()));
    executable().read_parameter(variable, array_of(variable, array), values.back());
  });
  communicator->barrier();  // no rank may still read what is about to be freed
  training = nullptr;
  shards.reset();
  steps.clear();
  lay_out(batch_size);
  auto next = values.begin();
  for_each_array([&](std::size_t variable, std::size_t array) {
    const bool writes = plan().graph.parameters[variable].is_local || communicator->is_mirror_owner();
    if (writes) executable().write_parameter(variable, *next, array_of(variable, array));
    ++next;
  });
  finish_writing_weights();
}

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the weights
void CompiledModel::finish_writing_weights() {
  communicator->barrier();
  if (communicator->is_mirror_owner() || sharding) executable().update_low_precision_copies();
  communicator->barrier();
  communicator->mirrored_written();
}

void CompiledModel::use_servers(const Plan& plan) const {
  ServerLayout layout;
  layout.shards = place_on_servers(plan, run_context.tasks()->servers(),
                                   parse_server_placement(run_context.options().ps_placement, "--ps-placement"));
  for (std::size_t array = 0; array <= static_cast<std::size_t>(num_slots(options.optimizer)); ++array)
    layout.arrays.push_back(offset_in_copy(plan, array));
  require_servers_for(layout);
  if (plan.graph.mixed_bfloat16) layout.low_precision = sizeof(float) * offset_in_copy(plan, layout.arrays.size());
  communicator->use_servers(layout);
}

/// Where a step is not one of all workers, each server counts updates by the gradients that it gets.
void CompiledModel::require_servers_for(const ServerLayout& layout) const {
  const std::size_t servers = run_context.tasks()->servers();
  const UpdatePolicy policy = run_context.update_policy();
  if (policy.waits_for_all(run_context.tasks()->workers())) return;
  for (std::size_t server = 0; server < servers; ++server) {
    if (std::ranges::find(layout.shards, server, &ServerShard::server) != layout.shards.end()) continue;
    throw UsageError(
        fmt::format("ps {} would hold no variable of this model, but --ps-mode asynchronous and "
                    "--replicas-to-aggregate need one on each; start fewer ps tasks",
                    server));
  }
  if (policy.is_asynchronous && servers > 1 && clipping_of(options.optimizer).needs_norms()) {
    throw UsageError(
        "with several ps tasks, --ps-mode asynchronous clips by value only: each server updates in an order of its "
        "own, and none knows all of a norm; start one ps task, or use --ps-mode synchronous");
  }
}

void CompiledModel::serve_step() {
  const StepNumbers numbers = server->take_step();
  iteration = numbers.iteration;
  if (numbers.learning_rate) set_learning_rate(options.optimizer, *numbers.learning_rate);
  steps.front()->step.train({}, options.optimizer, iteration);
  server->end_step();
}

void CompiledModel::allocate(const Plan& plan) {
  const bool mixed_precision = plan.graph.mixed_bfloat16;
  const auto kinds = static_cast<std::size_t>(num_slots(options.optimizer));
  constexpr std::size_t alignment = std::size_t{3} * 64;
  // Bytes of the weights, slots and, in mixed precision, low-precision copies of the weights.
  const auto bytes_of = [&](std::size_t elements, std::size_t weights) {
    return (weights + elements * kinds) * sizeof(float) + (mixed_precision ? weights * sizeof(std::uint16_t) : 0) +
           alignment;
  };
  const auto fill = [&](Arenas& filled, std::size_t elements, std::size_t weights, std::span<std::byte> memory) {
    filled.elements = elements;
    filled.weights = take<float>(memory, weights);
    filled.slots = take<float>(memory, elements * kinds);
    filled.low_precision = take<std::uint16_t>(memory, mixed_precision ? weights : 0);
  };
  communicator->exclude_from_compression(plan.non_gradient_ranges());
  communicator->send_without_zeros(plan.embedding_ranges());
  communicator->keep_whole(plan.constrained_ranges());
  const ArenaMemory memory =
      communicator->allocate(plan.elements, bytes_of(plan.elements, plan.weight_elements), plan.buckets);
  arenas.gradients = memory.gradients;
  fill(arenas, plan.elements, plan.weight_elements, memory.mirrored);
  if (!sharding) return;
  all_to_all_memory = AllToAllMemory(plan.graph);
  arenas.all_to_alls = all_to_all_memory.buffers();
  communicator->prepare_all_to_alls(all_to_all_memory.all_to_alls());
  local_memory = AlignedBuffer(plan.local_elements * sizeof(float) + 64 +
                               bytes_of(plan.local_elements, plan.local_weight_elements));
  auto rest = local_memory.as<std::byte>();
  std::ranges::fill(rest, std::byte{0});
  local.gradients = take<float>(rest, plan.local_elements);
  fill(local, plan.local_elements, plan.local_weight_elements, rest);
  arenas.local = &local;
}

std::vector<std::vector<float>> CompiledModel::weights() const {
  std::vector<std::vector<float>> all;
  visit_weights([&all](std::span<const float> values) { all.emplace_back(values.begin(), values.end()); });
  return all;
}

void CompiledModel::visit_weights(const std::function<void(std::span<const float>)>& visitor) const {
  synchronize();
  if (shards) {
    for (const std::vector<float>& values : shards->gather_weights(*communicator, executable(), arenas))
      visitor(values);
    return;
  }
  std::size_t index = 0;
  std::vector<float> values;
  for (const LayerInfo& layer : architecture.layers()) {
    for (const ParameterInfo& parameter : layer.parameters) {
      values.resize(static_cast<std::size_t>(parameter.shape.elements()));
      executable().read_parameter(index++, arenas.weights, values);
      visitor(values);
    }
  }
}

void CompiledModel::set_weights(std::span<const NamedTensor> variables) {
  communicator->barrier();  // wait until no rank still reads the old weights
  for (std::size_t p = 0; p < variables.size(); ++p) write_variable(p, 0, variables[p].values);
  finish_writing_weights();
}

std::span<float> CompiledModel::array_of(std::size_t variable, std::size_t array) const {
  const Arenas& its = arenas.of(plan().graph.parameters[variable]);
  return array == 0 ? its.weights : its.slots.subspan((array - 1) * its.elements, its.elements);
}

void CompiledModel::write_variable(std::size_t variable, std::size_t array, std::span<const float> values) {
  if (!plan().graph.parameters[variable].is_local && !communicator->is_mirror_owner()) return;
  const std::span<float> arena = array_of(variable, array);
  if (shards) {
    executable().write_parameter(variable, shards->shard_of(variable, communicator->rank(), values), arena);
  } else {
    executable().write_parameter(variable, values, arena);
  }
}

void CompiledModel::write_initial_slots() {
  const Slots kinds = slots_of(options.optimizer);
  const auto is_zero = [](const Slot& slot) { return slot.initial_value == 0; };
  if (std::ranges::all_of(kinds, is_zero)) return;  // the arenas are zeroed already
  std::vector<NamedTensor> slots = slots_for(architecture, options.optimizer);
  fill_initial_slots(options.optimizer, slots);
  write_slots(slots);
}

void CompiledModel::write_slots(std::span<const NamedTensor> slots) {
  const Slots kinds = slots_of(options.optimizer);
  const std::size_t trainable = kinds.empty() ? 0 : slots.size() / kinds.size();
  communicator->barrier();
  std::size_t weight = 0;  // index among the trainable weights
  for (int p = 0; p < plan().graph.metrics_parameter(); ++p) {
    if (!plan().graph.parameters[p].info.trainable) continue;
    for (std::size_t slot = 0; slot < kinds.size(); ++slot) {
      const std::size_t index = slot_index(kinds, slot, weight, trainable);
      write_variable(static_cast<std::size_t>(p), 1 + slot, slots[index].values);
    }
    ++weight;
  }
  communicator->barrier();
  communicator->mirrored_written();
}

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the device's memory
void CompiledModel::release_data() {
  for (const auto& step : steps) step->executable->release_data();
}

void CompiledModel::use_averages() {
  if (!shared_update(options.optimizer, 1).averages || iteration == 0) return;
  synchronize();
  communicator->fetch_slots();
  communicator->barrier();  // wait until no rank still reads the old weights
  for (int p = 0; p < plan().graph.metrics_parameter(); ++p) {
    const ParameterSpec& parameter = plan().graph.parameters[p];
    if (!parameter.info.trainable || (!parameter.is_local && !communicator->is_mirror_owner())) continue;
    const auto variable = static_cast<std::size_t>(p);
    std::vector<float> values(static_cast<std::size_t>(parameter.info.shape.elements()));
    executable().read_parameter(variable, array_of(variable, 1), values);
    executable().write_parameter(variable, values, array_of(variable, 0));
  }
  finish_writing_weights();
}

MetricSums CompiledModel::evaluate(const Batch& batch) {
  return evaluate(1, [&batch](std::uint64_t /*step*/) { return batch; });
}

MetricSums CompiledModel::evaluate(const EpochBatches& batches) {
  return evaluate(batches.size(), [&batches](std::uint64_t step) { return batches.at(0, step); });
}

template <typename BatchAt>
MetricSums CompiledModel::evaluate(std::uint64_t count, const BatchAt& batch_at) {
  CompiledStep& compiled = step_for(batch_size_of(batch_at(0)));
  synchronize();
  MetricSums all;
  MetricSums step_sums;
  std::vector<float> written(num_metric_elements());
  std::size_t in_flight = 0;
  const auto take_metrics = [&] {
    compiled.executable->take_local_metrics(written);
    metrics->read(written, step_sums);
    all += step_sums;
  };
  for (std::uint64_t step = 0; step < count; ++step) {
    run_context.report_busy();
    const Batch whole = batch_at(step);
    const std::uint64_t end = whole.position + whole.size;
    // The only step of a tensor-parallel model may be for fewer examples.
    for (Batch part = whole; part.position < end; part.position += part.size) {
      part.size = std::min<std::size_t>(compiled.batch_size, end - part.position);
      compiled.step.infer(feed->prepare(part, whole, iteration, false));
      if (in_flight + 1 == compiled.executable->max_in_flight()) {
        take_metrics();
      } else {
        ++in_flight;
      }
    }
  }
  for (; in_flight > 0; --in_flight) take_metrics();
  return all;
}

MetricSums CompiledModel::all_reduce(const MetricSums& local) const {
  std::vector<double> sums{local.loss_sum, local.num_examples};
  sums.insert(sums.end(), local.sums.begin(), local.sums.end());
  communicator->all_reduce_sum(sums);
  return {sums[0], sums[1], {sums.begin() + 2, sums.end()}};
}

std::size_t CompiledModel::num_metric_elements() const {
  return plan().graph.parameters[plan().graph.metrics_parameter()].storage;
}

std::vector<std::vector<float>> CompiledModel::predict(const Dataset& data, std::size_t batch_size) {
  feed->check_inputs(data);
  CompiledStep& compiled = step_for(useful_batch_size(batch_size, data));
  const std::size_t at_once = std::min(compiled.plan.graph.capacity, feed->capacity(batch_size));
  synchronize();
  std::vector<std::vector<float>> all;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    all.emplace_back(data.size() * static_cast<std::size_t>(architecture.output_shape(i).elements()));
  std::vector<std::uint32_t> order(data.size());
  std::iota(order.begin(), order.end(), 0U);
  StepContext context;
  context.data.inputs = feed->point_at_inputs(data);
  context.data.examples = data.size();
  for (std::size_t begin = 0; begin < data.size(); begin += at_once) {
    const std::size_t examples = std::min(at_once, data.size() - begin);
    run_context.report_busy();
    context.examples = std::span(order).subspan(begin, examples);
    compiled.step.predict(context);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t elements = all[i].size() / data.size();
      std::copy_n(compiled.executable->outputs(i).begin(), examples * elements,
                  all[i].begin() + static_cast<std::ptrdiff_t>(begin * elements));
    }
  }
  return all;
}

}  // namespace lockstep
