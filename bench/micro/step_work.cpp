// See step_work.hpp.
#include "micro/step_work.hpp"

#include "backend/make_backend.hpp"
#include "checkpoint/model_file.hpp"
#include "core/clock.hpp"
#include "core/parse_number.hpp"
#include "core/random.hpp"
#include "graph/lower.hpp"
#include "plan/step.hpp"
#include "support/models.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/compile_options.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <regex>
#include <span>
#include <utility>

namespace lockstep::bench {

namespace {

constexpr std::size_t examples_in_store = 10000;

constexpr std::array programs{"keras_mnist", "custom_training_mnist"};

bool is_file(const std::string& model) { return model.ends_with(".keras"); }
bool knows_program(const std::string& model) { return std::ranges::find(programs, model) != programs.end(); }

struct CompiledModel {
  Architecture architecture;
  CompileOptions options;
};

CompiledModel compiled_model(const std::string& model) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  if (model == "keras_mnist")
    return {testing::keras_mnist(), {.optimizer = SGD({.learning_rate = 0.001}), .loss = loss}};
  if (model == "custom_training_mnist") return {testing::custom_training_mnist(), {.optimizer = Adam(), .loss = loss}};
  ModelData file = load_model(model);
  if (!file.compile_state) throw DataError(model + ": is not compiled");
  return {std::move(file.architecture), std::move(static_cast<CompileOptions&>(*file.compile_state))};
}

Plan plan_of(const Job& job, const Backend& backend) {
  const CompiledModel model = compiled_model(job.model);
  Graph graph = lower(model.architecture, model.options, job.bfloat16 ? Precision::mixed_bfloat16 : Precision::float32);
  backend.lay_out(graph, job.local_batch);
  return make_plan(std::move(graph), backend.plan_options(job.ranks));
}

/// The fastest of a few calls, in seconds. Precise enough to choose between kernels that differ by more than the noise.
double quick_seconds(const BareKernel& kernel) {
  kernel.run();
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < 7; ++i) {
    const double begin = monotonic_seconds();
    kernel.run();
    best = std::min(best, monotonic_seconds() - begin);
  }
  return best;
}

}  // namespace

std::string Job::name() const { return model + "/" + std::to_string(local_batch) + (bfloat16 ? "/bf16" : "/f32"); }

std::vector<Job> all_jobs() {
  std::vector<Job> jobs;
  for (const char* model : programs) {
    for (const std::size_t local_batch : {std::size_t{64}, std::size_t{128}}) {
      jobs.push_back({.model = model, .local_batch = local_batch});
      if (onednn::has_bfloat16()) jobs.push_back({.model = model, .local_batch = local_batch, .bfloat16 = true});
    }
  }
  return jobs;
}

Job job_named(const std::string& name) {
  static const std::regex form("(.+)/([0-9]+)/(f32|bf16)");
  std::smatch parts;
  if (std::regex_match(name, parts, form) && (is_file(parts[1]) || knows_program(parts[1]))) {
    const auto examples = parse_number<std::size_t>(parts[2].str()).value_or(0);
    if (examples > 0) return {.model = parts[1], .local_batch = examples, .bfloat16 = parts[3] == "bf16"};
  }
  throw UsageError("unknown job '" + name + "'; jobs are keras_mnist/64/f32, custom_training_mnist/64/bf16 or " +
                   "FILE.keras/32/f32");
}

Plan plan_of(const Job& job) { return plan_of(job, *make_cpu_backend(1)); }

std::vector<Row> rows_of(const Plan& plan) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < plan.compute.size(); ++i) {
    const Operation& operation = plan.compute[i];
    std::string name(to_string(operation.kind));
    if (operation.kind != OperationKind::gather && operation.kind != OperationKind::loss) {
      name += "/" + plan.graph.layers[static_cast<std::size_t>(operation.layer)].name;
    }
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
    if (same == rows.end()) {
      rows.push_back({std::move(name), {i}});
    } else {
      same->operations.push_back(i);
    }
  }
  rows.push_back({"update", {}});
  return rows;
}

StepWork::StepWork(Job job)
    : job_(std::move(job)),
      optimizer_(compiled_model(job_.model).options.optimizer),
      backend_(make_cpu_backend(1)),
      plan_(plan_of(job_, *backend_)) {
  const std::size_t elements = plan_.elements;
  const auto slots = static_cast<std::size_t>(num_slots(optimizer_));
  const std::size_t low_bytes = job_.bfloat16 ? elements * sizeof(std::uint16_t) : 0;
  const ArenaMemory memory =
      communicator_.allocate(elements, (1 + slots) * elements * sizeof(float) + low_bytes, plan_.buckets);
  auto* mirrored = reinterpret_cast<float*>(memory.mirrored.data());
  arenas_ = {.gradients = memory.gradients,
             .weights = {mirrored, elements},
             .slots = {mirrored + elements, slots * elements},
             .low_precision = {reinterpret_cast<std::uint16_t*>(mirrored + (1 + slots) * elements),
                               job_.bfloat16 ? elements : 0},
             .elements = elements};
  executable_ = backend_->compile(plan_.graph, plan_.compute, arenas_, job_.local_batch);
  std::vector<float> values;
  for (std::size_t p = 0; p + 1 < plan_.graph.parameters.size(); ++p) {
    const ParameterInfo& info = plan_.graph.parameters[p].info;
    values.resize(static_cast<std::size_t>(info.shape.elements()));
    initialize(info, 1, p, values);
    executable_->write_parameter(p, values, arenas_.weights);
  }
  executable_->update_low_precision_copies();
  other_gradients_ = AlignedBuffer(elements * sizeof(float));
  std::ranges::fill(other_gradients_.as<float>(), 0.001F);

  const std::size_t stored = fill_data();
  replica_ = {.begin = 0, .end = job_.local_batch};
  classes_pointer_ = classes_.data();
  context_ = {.data = {.inputs = {&input_pointer_, 1}, .targets = {&classes_pointer_, 1}, .examples = stored},
              .examples = examples_,
              .replicas = {&replica_, 1},
              .gradient_scale = 1.0 / static_cast<double>(job_.local_batch * static_cast<std::size_t>(job_.ranks)),
              .sample_weights = {},
              .training = true};
  run_step();  // also creates the kernels
}

void StepWork::run_step() { Step(plan_, *executable_, communicator_).train(context_, optimizer_, ++iteration_); }

std::size_t StepWork::fill_data() {
  const Graph& graph = plan_.graph;
  const auto elements = static_cast<std::size_t>(graph.tensors[graph.inputs.front().tensor].elements());
  const bool is_program = !is_file(job_.model);
  const std::size_t stored = is_program ? examples_in_store : 4 * job_.local_batch;
  RandomStream random(1, RandomPurpose::test, 1);
  if (is_program) {
    pixels_.resize(stored * elements);
    for (std::uint8_t& pixel : pixels_) pixel = static_cast<std::uint8_t>(random.below(256));
    input_pointer_ = pixels_.data();
  } else {
    const auto embedding = std::ranges::find(graph.forward, OperationKind::embedding, &Operation::kind);
    const auto words = embedding == graph.forward.end()
                           ? 0
                           : graph.parameters[static_cast<std::size_t>(embedding->parameter)].info.shape[0];
    values_.resize(stored * elements);
    for (float& value : values_) {
      value = words > 0 ? static_cast<float>(random.below(static_cast<std::uint32_t>(words))) : random.uniform();
    }
    input_pointer_ = values_.data();
  }
  const auto num_classes = static_cast<std::uint32_t>(graph.tensors[graph.outputs.front().tensor].channels);
  classes_.resize(stored);
  for (std::int32_t& number : classes_) number = static_cast<std::int32_t>(random.below(num_classes));
  examples_.resize(job_.local_batch);
  for (std::uint32_t& example : examples_) example = random.below(static_cast<std::uint32_t>(stored));
  return stored;
}

void StepWork::run(const Row& row) {
  for (const std::size_t operation : row.operations) executable_->run(operation, context_);
  if (!row.operations.empty()) return;
  std::vector<const float*> sources{arenas_.gradients.data()};
  while (std::ssize(sources) < job_.ranks) sources.push_back(other_gradients_.as<float>().data());
  ++iteration_;
  for (const Range& bucket : plan_.buckets) {
    const std::size_t share = (bucket.end - bucket.begin) / static_cast<std::size_t>(job_.ranks);
    executable_->update({bucket.begin, bucket.begin + share, sources}, optimizer_, iteration_);
  }
}

std::string StepWork::implementation(const Row& row) const {
  return row.operations.empty() ? "loop" : executable_->implementation(row.operations.front());
}

std::vector<BareKernel> StepWork::bare(const Row& row) const {
  if (row.operations.empty()) {
    return {bare_update(optimizer_, plan_.elements / static_cast<std::size_t>(job_.ranks), job_.ranks, job_.bfloat16)};
  }
  return bare_kernels(dnnl_, plan_.graph, plan_.compute[row.operations.front()], job_.local_batch);
}

std::vector<BareKernel> fastest(std::vector<BareKernel> kernels) {
  std::vector<std::pair<BareKernel, double>> chosen;
  for (BareKernel& kernel : kernels) {
    const double seconds = quick_seconds(kernel);
    const auto same =
        std::find_if(chosen.begin(), chosen.end(), [&](const auto& other) { return other.first.part == kernel.part; });
    if (same == chosen.end()) {
      chosen.emplace_back(std::move(kernel), seconds);
    } else if (seconds < same->second) {
      *same = {std::move(kernel), seconds};
    }
  }
  std::vector<BareKernel> result;
  for (auto& [kernel, seconds] : chosen) result.push_back(std::move(kernel));
  return result;
}

std::string describe(const std::vector<BareKernel>& kernels) {
  std::string text;
  for (const BareKernel& kernel : kernels) {
    text += (text.empty() ? "" : ", ") + kernel.part + " " + kernel.algorithm;
    if (kernel.implementation != kernel.algorithm) text += " " + kernel.implementation;
  }
  return text;
}

}  // namespace lockstep::bench
