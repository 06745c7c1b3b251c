// See compiled_model.hpp.
#include "training/compiled_model.hpp"

#include "checkpoint/keras_config.hpp"
#include "plan/lower.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {

namespace {

/// "Input(28, 28) Dense(10,)": what a person needs to tell two models apart.
std::string outline_of(const Sequential& architecture) {
  std::string outline;
  for (const LayerInfo& layer : architecture.layers()) {
    if (!outline.empty()) outline += ' ';
    outline += layer.class_name + layer.output_shape.to_string();
  }
  return outline;
}

template <typename T>
std::span<T> take(std::span<std::byte>& memory, std::size_t count) {
  constexpr std::size_t line = 64;
  const std::size_t bytes = (count * sizeof(T) + line - 1) / line * line;
  const std::span<T> taken(reinterpret_cast<T*>(memory.data()), count);
  memory = memory.subspan(bytes);
  return taken;
}

}  // namespace

CompiledModel::CompiledModel(Runtime& runtime, const Sequential& whole, const CompileOptions& asked,
                             std::size_t replicas, const std::string& kept_division)
    : architecture(whole), options(asked) {
  const Options& run = runtime.options();
  Optimizer& optimizer = options.optimizer;
  if (run.learning_rate) replace_learning_rate(optimizer, *run.learning_rate);
  check(optimizer);
  description = training_to_json({optimizer, options.loss, options.metrics, 0, {}});
  for (const auto& [what, value] : identity()) runtime.agree(what, value);
  make_plan_for(runtime, replicas, kept_division);
  runtime.agree("the plan", plan.digest());

  communicator = runtime.new_communicator();
  allocate(run.precision == Precision::mixed_bfloat16);
  executable = runtime.backend().compile(plan.graph, plan.compute, arenas, feed->capacity());
  step = std::make_unique<Step>(plan, *executable, *communicator, own.gradients.data());
  if (division) shards.emplace(architecture, *division, plan);
  snapshot = std::make_unique<Snapshot>(architecture, plan, *executable, shards ? &*shards : nullptr);
}

NamedTexts CompiledModel::identity() const {
  return {{"the model", outline_of(architecture)},
          {"the layers' options", sequential_to_json(architecture)},
          {"how the model is compiled", description}};
}

/// Chooses how the model is divided, and what this rank's part of it is.
void CompiledModel::make_plan_for(Runtime& runtime, std::size_t replicas, const std::string& kept_division) {
  const Options& run = runtime.options();
  const int ranks = runtime.world().size();
  Graph graph = lower(architecture, options.loss, run.precision == Precision::mixed_bfloat16, run.input_scale);
  graph.replicas = replicas;
  // A job that was divided by features goes on by examples where GPUs compute.
  const bool keeps = !kept_division.empty() && runtime.backend().queue() == nullptr;
  choice = keeps ? DivisionChoice{.division = division_of(graph, ranks, kept_division), .why = "it was so before"}
                 : choose_division(runtime, graph, options.optimizer, replicas);
  division = choice.division;
  layers = layer_divisions(graph, division, ranks, static_cast<std::size_t>(run.global_batch_size));
  feed = std::make_unique<BatchFeed>(runtime, architecture, replicas, division.has_value());
  const std::size_t capacity = feed->capacity();
  std::string its_division;
  if (division) {
    its_division = division->to_string(graph);
    graph = part_of(graph, *division, runtime.world().rank(), capacity, runtime.backend());
  } else {
    runtime.backend().lay_out(graph, capacity);
  }
  plan = make_plan(std::move(graph), runtime.backend().plan_options(ranks));
  plan.division = std::move(its_division);
}

void CompiledModel::allocate(bool mixed_precision) {
  const auto kinds = static_cast<std::size_t>(slots_of(options.optimizer));
  constexpr std::size_t alignment = std::size_t{3} * 64;
  // Weights, slots and, in mixed precision, low-precision copies of so many elements.
  const auto bytes_of = [&](std::size_t elements) {
    return elements * (1 + kinds) * sizeof(float) + (mixed_precision ? elements * sizeof(std::uint16_t) : 0) +
           alignment;
  };
  const auto fill = [&](Arenas& filled, std::size_t elements, std::span<std::byte> memory) {
    filled.elements = elements;
    filled.weights = take<float>(memory, elements);
    filled.slots = take<float>(memory, elements * kinds);
    filled.low_precision = take<std::uint16_t>(memory, mixed_precision ? elements : 0);
  };
  const std::size_t elements = plan.elements;
  communicator->keep_exact(plan.sums_that_are_no_gradients());
  const ArenaMemory memory = communicator->allocate(elements, bytes_of(elements), plan.buckets);
  arenas.gradients = memory.gradients;
  fill(arenas, elements, memory.mirrored);
  if (!division) return;
  exchanges = ExchangeMemory(plan.graph);
  arenas.exchanges = exchanges.buffers();
  communicator->prepare_exchanges(exchanges.exchanges());
  own_memory = AlignedBuffer(plan.own_elements * sizeof(float) + 64 + bytes_of(plan.own_elements));
  auto rest = own_memory.as<std::byte>();
  std::ranges::fill(rest, std::byte{0});
  own.gradients = take<float>(rest, plan.own_elements);
  fill(own, plan.own_elements, rest);
  arenas.own = &own;
}

std::vector<std::vector<float>> CompiledModel::weights() const {
  step->settle();
  if (shards) return shards->gather_weights(*communicator, *executable, arenas);
  std::vector<std::vector<float>> all;
  for (const LayerInfo& layer : architecture.layers()) {
    for (const ParameterInfo& parameter : layer.parameters) {
      std::vector<float>& values = all.emplace_back(static_cast<std::size_t>(parameter.shape.elements()));
      executable->read_parameter(all.size() - 1, arenas.weights, values);
    }
  }
  return all;
}

void CompiledModel::write_weights(std::span<const Variable> variables) {
  communicator->barrier();  // nobody may still read what is about to change
  for (std::size_t p = 0; p < variables.size(); ++p) write_variable(p, 0, variables[p].values);
  if (communicator->owns_mirror() || division) executable->refresh();
  communicator->barrier();
}

void CompiledModel::write_variable(std::size_t variable, std::size_t array, std::span<const float> values) {
  const ParameterSpec& spec = plan.graph.parameters[variable];
  if (!spec.own && !communicator->owns_mirror()) return;
  const Arenas& its = arenas.of(spec);
  const std::span<float> arena = array == 0 ? its.weights : its.slots.subspan((array - 1) * its.elements, its.elements);
  if (shards) {
    executable->write_parameter(variable, shards->part_of(variable, communicator->rank(), values), arena);
  } else {
    executable->write_parameter(variable, values, arena);
  }
}

void CompiledModel::write_slots(const SavedTraining& training) {
  const auto kinds = static_cast<std::size_t>(slots_of(options.optimizer));
  const std::size_t trainable = kinds > 0 ? training.slots.size() / kinds : 0;
  communicator->barrier();
  std::size_t weight = 0;  // among the trainable ones
  for (int p = 0; p < plan.graph.metrics_parameter(); ++p) {
    if (!plan.graph.parameters[p].info.trainable) continue;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const std::size_t place = place_of_slot(options.optimizer, kind, kinds, weight, trainable);
      write_variable(static_cast<std::size_t>(p), 1 + kind, training.slots.at(place).values);
    }
    ++weight;
  }
  communicator->barrier();
}

}  // namespace lockstep
