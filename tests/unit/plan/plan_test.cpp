// Invariants of all plans, for all models and options: arenas, buckets, and an order of operations that never reads
// weights before their update and never overwrites a gradient in flight.
#include "plan/plan.hpp"

#include "backend/make_backend.hpp"
#include "graph/lower.hpp"
#include "support/catch.hpp"
#include "support/models.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace lockstep;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});

Sequential keras_mnist(int units = 128) {
  return Sequential{Input({28, 28}),
                    Reshape({28, 28, 1}),
                    Conv2D(32, 3, {.activation = relu}),
                    Flatten(),
                    Dense(units, {.activation = relu}),
                    Dense(10)};
}

const std::vector<Sequential> models{
    keras_mnist(),
    Sequential{Input({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), MaxPooling2D(),
               Conv2D(64, 3, {.activation = relu}), MaxPooling2D(), Flatten(), Dense(64, {.activation = relu}),
               Dense(10)},
    Sequential{Input({9, 9, 3}), Conv2D(33, 3), BatchNormalization(), Activation(relu), Dropout(0.5),
               BatchNormalization({.center = false, .scale = false}), Conv2D(5, 1, {.use_bias = false}),
               GlobalAveragePooling2D(), Dense(7, {.use_bias = false}), Activation(sigmoid),
               Dense(3, {.activation = softmax})},
    Sequential{Input({300}), Dense(1), Dense(500, {.use_bias = false}), Dense(3, {.activation = softmax}),
               Activation(relu)},
    Sequential{Input({4}), Activation(softmax)},
    testing::partly_frozen(),
};

std::vector<PlanOptions> tested_plan_options() {
  std::vector<PlanOptions> ways{{}};
  for (const std::size_t chunk : {1, 5000, 100000}) {
    for (const std::size_t bucket : {1, 3000, 1000000000}) {
      for (const std::size_t lag : {0, 1, 2, 5, 1000}) ways.push_back({chunk, bucket, lag});
    }
  }
  return ways;
}

Plan plan_of(const Sequential& model, const PlanOptions& options = {}, const Loss& loss = logits,
             std::size_t capacity = 32) {
  Graph graph = lower(model, loss, Precision::float32);
  make_cpu_backend(1)->lay_out(graph, capacity);
  return make_plan(std::move(graph), options);
}

void for_each_plan(const std::function<void(const Plan&, const PlanOptions&)>& check) {
  for (const Sequential& model : models) {
    for (const PlanOptions& options : tested_plan_options()) {
      INFO("chunks of " << options.chunk_bytes << ", buckets of " << options.bucket_bytes << " bytes, lag "
                        << options.update_lag);
      const Plan plan = plan_of(model, options);
      INFO(plan.to_string());
      check(plan, options);
    }
  }
}

/// The elements of the arenas whose weights an operation reads, or whose gradients it writes.
std::vector<Range> touched_by(const Operation& operation, const Plan& plan) {
  const auto whole = [&](int parameter) {
    const ParameterSpec& spec = plan.graph.parameters[static_cast<std::size_t>(parameter)];
    return Range{spec.offset, spec.offset + spec.storage};
  };
  if (operation.parameter < 0) return {};
  if (operation.kind == OperationKind::loss) return {whole(operation.parameter)};
  std::vector<Range> ranges;
  const auto count = static_cast<int>(plan.graph.layers[static_cast<std::size_t>(operation.layer)].parameters.size());
  for (int i = 0; i < count; ++i) ranges.push_back(whole(operation.parameter + i));
  if (operation.kind == OperationKind::dense_backward) {
    const ParameterSpec& kernel = plan.graph.parameters[static_cast<std::size_t>(operation.parameter)];
    const auto units = static_cast<std::size_t>(kernel.info.shape[1]);
    ranges[0] = {kernel.offset + operation.input_features.begin * units,
                 kernel.offset + operation.input_features.end * units};
    if (operation.input_features.begin > 0) ranges.resize(1);
  }
  return ranges;
}

/// The buckets that a step's operation touches; empty for other steps.
std::set<std::size_t> buckets_of(const PlanStep& step, const Plan& plan) {
  std::set<std::size_t> buckets;
  const Operation* operation = plan.operation_of(step);
  if (operation == nullptr) return buckets;
  for (const Range& range : touched_by(*operation, plan)) {
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      if (range.begin < plan.buckets[b].end && range.end > plan.buckets[b].begin) buckets.insert(b);
    }
  }
  return buckets;
}

template <typename Alternative>
std::ptrdiff_t place_of(const Plan& plan, std::size_t bucket) {
  const auto found =
      std::ranges::find_if(plan.training, [&](const PlanStep& step) { return is_step_of<Alternative>(step, bucket); });
  return found - plan.training.begin();
}

/// The operations of all Compute steps.
std::vector<Operation> operations_of(const Plan& plan, const std::vector<PlanStep>& steps) {
  std::vector<Operation> operations;
  for (const PlanStep& step : steps) {
    if (const Operation* operation = plan.operation_of(step)) operations.push_back(*operation);
  }
  return operations;
}

}  // namespace

TEST_CASE("parameters are laid out in reverse layer order, aligned, without overlap") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    std::vector<const ParameterSpec*> parameters;
    for (const ParameterSpec& parameter : plan.graph.parameters) parameters.push_back(&parameter);
    std::ranges::sort(parameters, {}, &ParameterSpec::offset);
    std::size_t end = 0;
    for (const ParameterSpec* parameter : parameters) {
      CHECK(parameter->offset % 16 == 0);
      CHECK(parameter->offset >= end);
      CHECK(parameter->offset < end + 16);
      CHECK(parameter->storage >= static_cast<std::size_t>(parameter->info.shape.elements()));
      end = parameter->offset + parameter->storage;
    }
    CHECK(end <= plan.weight_elements);
    CHECK(plan.weight_elements < end + 16);
    CHECK(parameters.front()->rule == UpdateRule::assign);
    const auto is_frozen = [](const ParameterSpec* parameter) { return parameter->rule == UpdateRule::frozen; };
    for (const ParameterSpec* parameter : parameters) {
      CHECK((parameter->offset >= plan.elements) == is_frozen(parameter));
    }
    std::erase_if(parameters, is_frozen);
    std::size_t last_layer = plan.graph.layers.size();
    for (std::size_t i = 1; i < parameters.size(); ++i) {
      std::size_t layer = 0;
      while (!parameters[i]->name.starts_with(plan.graph.layers[layer].name + "/")) ++layer;
      CHECK(layer <= last_layer);
      last_layer = layer;
    }
  });
}

TEST_CASE("buckets cover the arenas once in whole cache lines") {
  for_each_plan([](const Plan& plan, const PlanOptions& options) {
    std::vector<Range> buckets = plan.buckets;
    std::ranges::sort(buckets, {}, &Range::begin);
    std::size_t end = 0;
    std::size_t small = 0;
    for (const Range& bucket : buckets) {
      CHECK(bucket.begin == end);
      CHECK(bucket.end > bucket.begin);
      CHECK(bucket.begin % 16 == 0);
      end = bucket.end;
      if ((bucket.end - bucket.begin) * sizeof(float) < options.bucket_bytes) ++small;
    }
    CHECK(end == plan.elements);
    // Only a few buckets are smaller than requested: the last one, and the remainders beside a Dense kernel's chunks.
    if (options.chunk_bytes >= options.bucket_bytes) CHECK(small <= 1 + plan.graph.layers.size());
    const Range metrics = plan.buckets[plan.metrics_bucket];
    CHECK(metrics.begin <= plan.graph.parameters.back().offset);
    CHECK(metrics.end >= plan.graph.parameters.back().offset + plan.graph.parameters.back().storage);
  });
}

TEST_CASE("every bucket is complete when marked ready and is not read before its update") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    std::set<std::size_t> ready;
    std::set<std::size_t> updated;
    for (const PlanStep& step : plan.training) {
      if (const auto* marked = std::get_if<MarkReady>(&step)) CHECK(ready.insert(marked->bucket).second);
      if (const auto* update = std::get_if<Update>(&step)) {
        CHECK(ready.contains(update->bucket));
        CHECK(updated.insert(update->bucket).second);
      }
      for (const std::size_t bucket : buckets_of(step, plan)) CHECK(!ready.contains(bucket));
    }
    CHECK(ready.size() == plan.buckets.size());
    CHECK(updated.size() == plan.buckets.size());
  });
}

TEST_CASE("every bucket is awaited before its weights are read or gradients written") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    std::set<std::size_t> awaited;
    for (const PlanStep& step : plan.training) {
      if (const auto* wait = std::get_if<WaitUpdated>(&step)) CHECK(awaited.insert(wait->bucket).second);
      for (const std::size_t bucket : buckets_of(step, plan)) {
        INFO(to_string(plan.operation_of(step)->kind) << " touches bucket " << bucket);
        CHECK(awaited.contains(bucket));
      }
    }
    CHECK(awaited.contains(plan.metrics_bucket));
  });
}

TEST_CASE("backward continues for update_lag buckets before an update") {
  for_each_plan([](const Plan& plan, const PlanOptions& options) {
    const std::size_t count = plan.buckets.size();
    for (std::size_t bucket = 0; bucket < count; ++bucket) {
      const auto update = place_of<Update>(plan, bucket);
      const std::size_t last = std::min(count - 1, bucket + options.update_lag);
      CHECK(update > place_of<MarkReady>(plan, last));
      if (last + 1 < count) CHECK(update < place_of<MarkReady>(plan, last + 1));
      if (bucket > 0) CHECK(update > place_of<Update>(plan, bucket - 1));
    }
  });
}

TEST_CASE("reduction starts during backward") {
  for (std::size_t m = 0; m < 2; ++m) {  // the MNIST models with default options
    const Plan plan = plan_of(models[m]);
    INFO(plan.to_string());
    CHECK(plan.buckets.size() >= 3);
    const auto runs_backward = [&](const PlanStep& step) {
      const Operation* operation = plan.operation_of(step);
      return operation != nullptr && is_backward(*operation);
    };
    const auto last_backward = std::find_if(plan.training.rbegin(), plan.training.rend(), runs_backward).base() - 1;
    CHECK(place_of<Update>(plan, 0) < last_backward - plan.training.begin());
  }
}

TEST_CASE("the chunks of a Dense kernel cover its rows once") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    for (const Operation& dense : plan.graph.forward) {
      if (dense.kind != OperationKind::dense) continue;
      std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
      for (const Operation& operation : operations_of(plan, plan.training)) {
        if (operation.kind != OperationKind::dense_backward || operation.layer != dense.layer) continue;
        chunks.emplace_back(static_cast<std::int64_t>(operation.input_features.begin),
                            static_cast<std::int64_t>(operation.input_features.end));
      }
      std::ranges::sort(chunks);
      std::int64_t end = 0;
      for (const auto& [begin, chunk_end] : chunks) {
        CHECK(begin == end);
        CHECK(chunk_end > begin);
        end = chunk_end;
      }
      const bool learns = !chunks.empty();
      CHECK(learns);
      CHECK(end == plan.graph.tensors[static_cast<std::size_t>(dense.input)].elements());
    }
  });
}

TEST_CASE("compute operations are indexed by id and inference is forward only") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    std::vector<int> computed(plan.compute.size(), 0);
    for (const PlanStep& step : plan.training) {
      if (const auto* compute = std::get_if<Compute>(&step)) ++computed.at(compute->operation);
    }
    CHECK(std::ranges::all_of(computed, [](int times) { return times == 1; }));
    std::size_t expected = 0;
    std::size_t operations = 0;  // counts each operation once, not per microbatch
    for (const Operation& operation : operations_of(plan, plan.inference)) {
      if (operation.microbatch.index > 0) continue;
      ++operations;
      expected += operation.microbatch.count;
    }
    CHECK(operations == plan.graph.forward.size());
    CHECK(plan.inference.size() == expected);
    for (const PlanStep& step : plan.inference) {
      const Operation* operation = plan.operation_of(step);
      CHECK((operation != nullptr && !is_backward(*operation)));
    }
  });
}

TEST_CASE("a digest identifies one plan") {
  const std::string digest = plan_of(keras_mnist()).digest();
  CHECK(digest.size() == 16);
  CHECK(digest.find_first_not_of("0123456789abcdef") == std::string::npos);
  std::set<std::string> others{digest};
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> noise(static_cast<std::size_t>(1000 * i),
                                   1e30F);  // the digest must not depend on uninitialized memory
    CHECK(plan_of(keras_mnist()).digest() == digest);
  }
  for (const int units : {127, 129}) CHECK(others.insert(plan_of(keras_mnist(units)).digest()).second);
  CHECK(others.insert(plan_of(keras_mnist(), {.chunk_bytes = 100000}).digest()).second);
  CHECK(others.insert(plan_of(models[1], {.bucket_bytes = 1}).digest()).second);
  CHECK(plan_of(keras_mnist(), {.update_lag = 3}).digest() == digest);  // settings that affect only one rank may differ
  for (std::size_t m = 1; m < models.size(); ++m) CHECK(others.insert(plan_of(models[m]).digest()).second);
  Plan laid_out_otherwise = plan_of(keras_mnist());
  laid_out_otherwise.graph.tensors[1].layout =
      laid_out_otherwise.graph.tensors[1].layout == Layout::nChw8c ? Layout::nhwc : Layout::nChw8c;
  CHECK(others.insert(laid_out_otherwise.digest()).second);
  Plan in_bfloat16 = plan_of(keras_mnist());
  in_bfloat16.graph.tensors[1].type = ElementType::bfloat16;
  CHECK(others.insert(in_bfloat16.digest()).second);
}

TEST_CASE("plans for all batch sizes have the same layouts, parameters and buckets") {
  for (const Sequential& model : models) {
    Graph graph = lower(model, logits, Precision::float32);
    make_cpu_backend(1)->lay_out(graph, 32);
    const Plan plan = make_plan(graph);
    for (const std::size_t capacity : {1, 7, 33, 500}) {
      graph.capacity = capacity;
      CHECK(make_plan(graph).digest() == plan.digest());
    }
  }
}

TEST_CASE("a plan prints one line per element") {
  const Plan plan = plan_of(keras_mnist());
  const std::string text = plan.to_string();
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  CHECK(lines >= plan.graph.tensors.size() + plan.graph.parameters.size() + plan.buckets.size() + plan.training.size());
  CHECK(text.find("parameter dense/kernel (21632, 128) at ") != std::string::npos);
  CHECK(text.find("gather input_layer -> t0\n") != std::string::npos);
  CHECK(text.find("convolution conv2d t0 -> t1 relu\n") != std::string::npos);
  CHECK(text.find("(input gradient through relu)") != std::string::npos);
  CHECK(text.find("mark_ready bucket 0\n") != std::string::npos);
  CHECK(text.find("update bucket 0\n") != std::string::npos);
  CHECK(text.find("wait_updated bucket 0\n") != std::string::npos);
}

TEST_CASE("layers that exceed the cache run in microbatches and are reduced after the last") {
  const auto sliced = [](std::size_t cache_bytes) {
    Graph graph =
        lower(Sequential{Input({12, 12, 1}), Conv2D(16, 3), MaxPooling2D(), Conv2D(16, 3), Flatten(), Dense(4)},
              SparseCategoricalCrossentropy({.from_logits = true}), Precision::float32);
    make_cpu_backend(1)->lay_out(graph, 40);
    graph.cache_bytes = cache_bytes;
    return make_plan(std::move(graph));
  };
  CHECK(std::ranges::all_of(sliced(0).compute,
                            [](const Operation& operation) { return operation.microbatch.count == 1; }));
  const Plan plan = sliced(1);  // one example per microbatch
  CHECK(plan.digest() == sliced(0).digest());
  std::vector<int> forward;
  std::vector<int> backward;
  std::size_t last_backward = 0;
  std::size_t contribution = 0;
  for (std::size_t i = 0; i < plan.training.size(); ++i) {
    if (std::holds_alternative<MarkReady>(plan.training[i])) contribution = i;
    if (plan.operation_of(plan.training[i]) == nullptr) continue;
    const Operation& operation = *plan.operation_of(plan.training[i]);
    if (operation.kind == OperationKind::convolution) forward.push_back(static_cast<int>(operation.microbatch.index));
    if (operation.kind == OperationKind::dense) CHECK(operation.microbatch.count == 1);
    if (operation.kind == OperationKind::convolution_backward) {
      backward.push_back(static_cast<int>(operation.microbatch.index));
      last_backward = i;
    }
  }
  CHECK(forward.size() == 80);  // 40 examples through two convolutions
  CHECK(std::ranges::is_sorted(forward));
  CHECK(forward.back() == 39);
  CHECK(backward == forward);
  CHECK(contribution > last_backward);
}

TEST_CASE("for small batches only the layers up to the first pooling run in microbatches") {
  Graph graph = lower(Sequential{Input({12, 12, 1}), Conv2D(16, 3, {.activation = relu}), MaxPooling2D(),
                                 Conv2D(16, 3, {.activation = relu}), MaxPooling2D(), Flatten(), Dense(4)},
                      SparseCategoricalCrossentropy({.from_logits = true}), Precision::float32);
  make_cpu_backend(1)->lay_out(graph, 40);
  const auto bytes_of = [&graph](std::size_t tensors) {
    std::size_t bytes = 0;
    for (std::size_t t = 1; t <= tensors; ++t) bytes += static_cast<std::size_t>(graph.tensors[t].elements()) * 4;
    return bytes;
  };
  graph.cache_bytes = 16 * bytes_of(4);  // three microbatches for all layers
  const std::size_t rows = graph.cache_bytes / 5 / bytes_of(2);
  REQUIRE(rows < 8);
  const int slices = static_cast<int>((40 + rows - 1) / rows);
  const Plan plan = make_plan(std::move(graph));
  for (const Operation& operation : plan.compute) {
    INFO(to_string(operation.kind) << " of layer " << operation.layer);
    const bool first = operation.kind == OperationKind::gather || operation.layer == 1 || operation.layer == 2;
    CHECK(operation.microbatch.count == (first ? static_cast<std::size_t>(slices) : 1));
  }
  // All microbatches share this tensor's memory: a convolution's output is not read after pooling.
  CHECK(plan.graph.tensors[1].microbatch_examples ==
        (40 + static_cast<std::size_t>(slices) - 1) / static_cast<std::size_t>(slices));
  for (const std::size_t t : {0, 2, 3, 4}) CHECK(plan.graph.tensors[t].microbatch_examples == 0);
}
