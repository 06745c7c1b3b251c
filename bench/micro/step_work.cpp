// See step_work.hpp.
#include "micro/step_work.hpp"

#include "backend/make_backend.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "graph/lower.hpp"
#include "plan/step.hpp"
#include "support/models.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace lockstep::bench {

namespace {

constexpr std::size_t examples_in_store = 10000;
constexpr std::size_t pixels_of_example = std::size_t{28} * 28;

Sequential architecture_of(const std::string& model) {
  if (model == "keras_mnist") return testing::keras_mnist();
  if (model == "custom_training_mnist") return testing::custom_training_mnist();
  throw UsageError("unknown model '" + model + "'; use keras_mnist or custom_training_mnist");
}

Optimizer optimizer_of(const std::string& model) {
  if (model == "keras_mnist") return SGD({.learning_rate = 0.001});
  return Adam();
}

Plan plan_of(const Job& job, const Backend& backend) {
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  Graph graph = lower(architecture_of(job.model), loss, job.bfloat16 ? Precision::mixed_bfloat16 : Precision::float32);
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
  for (const char* model : {"keras_mnist", "custom_training_mnist"}) {
    for (const std::size_t local_batch : {std::size_t{64}, std::size_t{128}}) {
      jobs.push_back({.model = model, .local_batch = local_batch});
      if (onednn::has_bfloat16()) jobs.push_back({.model = model, .local_batch = local_batch, .bfloat16 = true});
    }
  }
  return jobs;
}

Plan plan_of(const Job& job) { return plan_of(job, *make_cpu_backend(1)); }

std::vector<Row> rows_of(const Plan& plan) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < plan.compute.size(); ++i) {
    const Operation& operation = plan.compute[i];
    std::string name(to_string(operation.kind));
    if (operation.parameter >= 0 || operation.kind == OperationKind::max_pooling ||
        operation.kind == OperationKind::max_pooling_backward) {
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

StepWork::StepWork(Job job) : job_(std::move(job)), backend_(make_cpu_backend(1)), plan_(plan_of(job_, *backend_)) {
  const Optimizer optimizer = optimizer_of(job_.model);
  const std::size_t elements = plan_.elements;
  const auto slots = static_cast<std::size_t>(num_slots(optimizer));
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

  RandomStream random(1, RandomPurpose::test, 1);
  pixels_.resize(examples_in_store * pixels_of_example);
  for (std::uint8_t& pixel : pixels_) pixel = static_cast<std::uint8_t>(random.below(256));
  classes_.resize(examples_in_store);
  for (std::int32_t& number : classes_) number = static_cast<std::int32_t>(random.below(10));
  examples_.resize(job_.local_batch);
  for (std::uint32_t& example : examples_) example = random.below(examples_in_store);
  replica_ = {.begin = 0, .end = job_.local_batch};
  pixels_pointer_ = pixels_.data();
  classes_pointer_ = classes_.data();
  context_ = {
      .data = {.inputs = {&pixels_pointer_, 1}, .targets = {&classes_pointer_, 1}, .examples = examples_in_store},
      .examples = examples_,
      .replicas = {&replica_, 1},
      .gradient_scale = 1.0 / static_cast<double>(job_.local_batch * static_cast<std::size_t>(job_.ranks)),
      .sample_weights = {},
      .training = true};
  // One step creates the kernels and fills the tensors with realistic values before anything is timed.
  Step(plan_, *executable_, communicator_).train(context_, optimizer, ++iteration_);
}

void StepWork::run(const Row& row) {
  for (const std::size_t operation : row.operations) executable_->run(operation, context_);
  if (!row.operations.empty()) return;
  const Optimizer optimizer = optimizer_of(job_.model);
  std::vector<const float*> sources{arenas_.gradients.data()};
  while (std::ssize(sources) < job_.ranks) sources.push_back(other_gradients_.as<float>().data());
  ++iteration_;
  for (const Range& bucket : plan_.buckets) {
    const std::size_t share = (bucket.end - bucket.begin) / static_cast<std::size_t>(job_.ranks);
    executable_->update({bucket.begin, bucket.begin + share, sources}, optimizer, iteration_);
  }
}

std::string StepWork::implementation(const Row& row) const {
  return row.operations.empty() ? "loop" : executable_->implementation(row.operations.front());
}

std::vector<BareKernel> StepWork::bare(const Row& row) const {
  if (row.operations.empty()) {
    return {bare_update(optimizer_of(job_.model), plan_.elements / static_cast<std::size_t>(job_.ranks), job_.ranks,
                        job_.bfloat16)};
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
