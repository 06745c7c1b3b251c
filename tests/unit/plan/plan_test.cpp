// What every plan must hold to, whatever the model and however it is cut: arenas, buckets, and an order of operations
// in which nobody reads weights too early or overwrites a gradient too soon.
#include "plan/plan.hpp"

#include "backend/make_backend.hpp"
#include "plan/lower.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <utility>
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
               Dropout(0.5)},
    Sequential{Input({4}), Activation(softmax)},
};

std::vector<PlanOptions> ways_to_cut() {
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
  Graph graph = lower(model, loss, false);
  make_cpu_backend(1)->lay_out(graph, capacity);
  return make_plan(std::move(graph), options);
}

void for_each_plan(const std::function<void(const Plan&, const PlanOptions&)>& check) {
  for (const Sequential& model : models) {
    for (const PlanOptions& options : ways_to_cut()) {
      INFO("chunks of " << options.chunk_bytes << ", buckets of " << options.bucket_bytes << " bytes, lag "
                        << options.update_lag);
      const Plan plan = plan_of(model, options);
      INFO(plan.to_string());
      check(plan, options);
    }
  }
}

bool is_backward(const Operation& operation) { return operation.id >= 0 && operation.kind > OperationKind::loss; }

/// The elements of the arenas that an operation reads weights of, or writes gradients to.
std::vector<BucketRange> touched_by(const Operation& operation, const Plan& plan) {
  const auto whole = [&](int parameter) {
    const ParameterSpec& spec = plan.graph.parameters[static_cast<std::size_t>(parameter)];
    return BucketRange{spec.offset, spec.offset + spec.storage};
  };
  if (operation.id < 0 || operation.parameter < 0) return {};
  if (operation.kind == OperationKind::loss) return {whole(operation.parameter)};
  std::vector<BucketRange> ranges;
  const auto count = static_cast<int>(plan.graph.layers[static_cast<std::size_t>(operation.layer)].parameters.size());
  for (int i = 0; i < count; ++i) ranges.push_back(whole(operation.parameter + i));
  if (operation.kind == OperationKind::dense_backward) {
    const ParameterSpec& kernel = plan.graph.parameters[static_cast<std::size_t>(operation.parameter)];
    const std::int64_t units = kernel.info.shape[1];
    ranges[0] = {kernel.offset + static_cast<std::size_t>(operation.rows_begin * units),
                 kernel.offset + static_cast<std::size_t>(operation.rows_end * units)};
    if (operation.rows_begin > 0) ranges.resize(1);
  }
  return ranges;
}

/// The buckets an operation touches.
std::set<int> buckets_of(const Operation& operation, const Plan& plan) {
  std::set<int> buckets;
  for (const BucketRange& range : touched_by(operation, plan)) {
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      if (range.begin < plan.buckets[b].end && range.end > plan.buckets[b].begin) buckets.insert(static_cast<int>(b));
    }
  }
  return buckets;
}

std::ptrdiff_t place_of(const Plan& plan, OperationKind kind, int bucket) {
  const auto found = std::ranges::find_if(
      plan.training, [&](const Operation& operation) { return operation.kind == kind && operation.bucket == bucket; });
  return found - plan.training.begin();
}

}  // namespace

TEST_CASE("Parameters lie in the arenas in reverse layer order, aligned, and none on another") {
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
    CHECK(end <= plan.elements);
    CHECK(plan.elements < end + 16);
    CHECK(parameters.front()->rule == UpdateRule::assign);
    std::size_t last_layer = plan.graph.layers.size();
    for (std::size_t i = 1; i < parameters.size(); ++i) {
      std::size_t layer = 0;
      while (!parameters[i]->name.starts_with(plan.graph.layers[layer].name + "/")) ++layer;
      CHECK(layer <= last_layer);
      last_layer = layer;
    }
  });
}

TEST_CASE("Buckets cover the arenas once, in whole cache lines") {
  for_each_plan([](const Plan& plan, const PlanOptions& options) {
    std::vector<BucketRange> buckets = plan.buckets;
    std::ranges::sort(buckets, {}, &BucketRange::begin);
    std::size_t end = 0;
    std::size_t small = 0;
    for (const BucketRange& bucket : buckets) {
      CHECK(bucket.begin == end);
      CHECK(bucket.end > bucket.begin);
      CHECK(bucket.begin % 16 == 0);
      end = bucket.end;
      if ((bucket.end - bucket.begin) * sizeof(float) < options.bucket_bytes) ++small;
    }
    CHECK(end == plan.elements);
    // Few are smaller than was asked for: what ends the arenas, and what a Dense kernel's chunks leave beside them.
    if (options.chunk_bytes >= options.bucket_bytes) CHECK(small <= 1 + plan.graph.layers.size());
    const BucketRange metrics = plan.buckets[plan.metrics_bucket];
    CHECK(metrics.begin <= plan.graph.parameters.back().offset);
    CHECK(metrics.end >= plan.graph.parameters.back().offset + metric_places);
  });
}

TEST_CASE("Every bucket is contributed complete, then updated, and nobody reads it in between") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    std::set<int> contributed;
    std::set<int> updated;
    for (const Operation& operation : plan.training) {
      if (operation.kind == OperationKind::contribute) {
        CHECK(contributed.insert(operation.bucket).second);
      } else if (operation.kind == OperationKind::update) {
        CHECK(contributed.contains(operation.bucket));
        CHECK(updated.insert(operation.bucket).second);
      } else {
        for (const int bucket : buckets_of(operation, plan)) CHECK(!contributed.contains(bucket));
      }
    }
    CHECK(contributed.size() == plan.buckets.size());
    CHECK(updated.size() == plan.buckets.size());
  });
}

TEST_CASE("Every bucket is awaited before its weights are read and its gradients written") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    std::set<int> awaited;
    for (const Operation& operation : plan.training) {
      if (operation.kind == OperationKind::await) {
        CHECK(awaited.insert(operation.bucket).second);
        continue;
      }
      for (const int bucket : buckets_of(operation, plan)) {
        INFO(name_of(operation.kind) << " touches bucket " << bucket);
        CHECK(awaited.contains(bucket));
      }
    }
    CHECK(awaited.contains(static_cast<int>(plan.metrics_bucket)));
  });
}

TEST_CASE("Backward goes on for update_lag buckets before it turns back to one") {
  for_each_plan([](const Plan& plan, const PlanOptions& options) {
    const auto count = static_cast<int>(plan.buckets.size());
    for (int bucket = 0; bucket < count; ++bucket) {
      const auto update = place_of(plan, OperationKind::update, bucket);
      const std::size_t last = std::min(static_cast<std::size_t>(count - 1), bucket + options.update_lag);
      CHECK(update > place_of(plan, OperationKind::contribute, static_cast<int>(last)));
      if (last + 1 < plan.buckets.size()) {
        CHECK(update < place_of(plan, OperationKind::contribute, static_cast<int>(last) + 1));
      }
      if (bucket > 0) CHECK(update > place_of(plan, OperationKind::update, bucket - 1));
    }
  });
}

TEST_CASE("Reduction begins while backward is still going on") {
  for (std::size_t m = 0; m < 2; ++m) {  // the MNIST models, as they are cut unasked
    const Plan plan = plan_of(models[m]);
    INFO(plan.to_string());
    CHECK(plan.buckets.size() >= 3);
    const auto last_backward = std::find_if(plan.training.rbegin(), plan.training.rend(), is_backward).base() - 1;
    CHECK(place_of(plan, OperationKind::update, 0) < last_backward - plan.training.begin());
  }
}

TEST_CASE("The chunks of a Dense kernel are its rows, each once") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    for (const Operation& dense : plan.graph.forward) {
      if (dense.kind != OperationKind::dense) continue;
      std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
      for (const Operation& operation : plan.training) {
        if (operation.kind != OperationKind::dense_backward || operation.layer != dense.layer) continue;
        chunks.emplace_back(operation.rows_begin, operation.rows_end);
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

TEST_CASE("Compute operations are found by their number; inference is forward alone") {
  for_each_plan([](const Plan& plan, const PlanOptions&) {
    for (std::size_t id = 0; id < plan.compute.size(); ++id) CHECK(plan.compute[id].id == static_cast<int>(id));
    std::size_t computed = 0;
    for (const Operation& operation : plan.training) {
      if (operation.id < 0) continue;
      ++computed;
      CHECK(plan.compute[static_cast<std::size_t>(operation.id)].kind == operation.kind);
      CHECK(plan.compute[static_cast<std::size_t>(operation.id)].rows_begin == operation.rows_begin);
    }
    CHECK(computed == plan.compute.size());
    std::size_t expected = 0;
    std::size_t operations = 0;  // each as often as it has slices
    for (const Operation& operation : plan.inference) {
      if (operation.slice > 0) continue;
      ++operations;
      expected += static_cast<std::size_t>(operation.slices);
    }
    CHECK(operations == plan.graph.forward.size());
    CHECK(plan.inference.size() == expected);
    for (const Operation& operation : plan.inference) CHECK((operation.id >= 0 && !is_backward(operation)));
  });
}

TEST_CASE("A digest stands for one plan") {
  const std::string digest = plan_of(keras_mnist()).digest();
  CHECK(digest.size() == 16);
  CHECK(digest.find_first_not_of("0123456789abcdef") == std::string::npos);
  std::set<std::string> others{digest};
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> noise(static_cast<std::size_t>(1000 * i), 1e30F);  // memory differs, the plan must not
    CHECK(plan_of(keras_mnist()).digest() == digest);
  }
  for (const int units : {127, 129}) CHECK(others.insert(plan_of(keras_mnist(units)).digest()).second);
  CHECK(others.insert(plan_of(keras_mnist(), {.chunk_bytes = 100000}).digest()).second);
  CHECK(others.insert(plan_of(models[1], {.bucket_bytes = 1}).digest()).second);
  CHECK(plan_of(keras_mnist(), {.update_lag = 3}).digest() == digest);  // ranks may differ in what only they see
  for (std::size_t m = 1; m < models.size(); ++m) CHECK(others.insert(plan_of(models[m]).digest()).second);
  Plan laid_out_otherwise = plan_of(keras_mnist());
  laid_out_otherwise.graph.tensors[1].block = laid_out_otherwise.graph.tensors[1].block == 8 ? 16 : 8;
  CHECK(others.insert(laid_out_otherwise.digest()).second);
  Plan in_bfloat16 = plan_of(keras_mnist());
  in_bfloat16.graph.tensors[1].type = ElementType::bfloat16;
  CHECK(others.insert(in_bfloat16.digest()).second);
}

TEST_CASE("A plan prints a line for all that it is made of") {
  const Plan plan = plan_of(keras_mnist());
  const std::string text = plan.to_string();
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  CHECK(lines >= plan.graph.tensors.size() + plan.graph.parameters.size() + plan.buckets.size() + plan.training.size());
  CHECK(text.find("parameter dense/kernel (21632, 128) at ") != std::string::npos);
  CHECK(text.find("gather input_layer -> t0\n") != std::string::npos);
  CHECK(text.find("convolution conv2d t0 -> t1 relu\n") != std::string::npos);
  CHECK(text.find("(input gradient through relu)") != std::string::npos);
  CHECK(text.find("contribute bucket 0\n") != std::string::npos);
  CHECK(text.find("update bucket 0\n") != std::string::npos);
  CHECK(text.find("await bucket 0\n") != std::string::npos);
}

TEST_CASE("A trunk that outgrows the cache runs slice by slice, and its gradients are reduced after the last") {
  const auto sliced = [](std::size_t cache_bytes) {
    Graph graph =
        lower(Sequential{Input({12, 12, 1}), Conv2D(16, 3), MaxPooling2D(), Conv2D(16, 3), Flatten(), Dense(4)},
              SparseCategoricalCrossentropy({.from_logits = true}), false);
    make_cpu_backend(1)->lay_out(graph, 40);
    graph.cache_bytes = cache_bytes;
    return make_plan(std::move(graph));
  };
  CHECK(std::ranges::all_of(sliced(0).training, [](const Operation& operation) { return operation.slices == 1; }));
  const Plan plan = sliced(1);  // an example at a time
  CHECK(plan.digest() == sliced(0).digest());
  std::vector<int> forward;
  std::vector<int> backward;
  std::size_t last_backward = 0;
  std::size_t contribution = 0;
  for (std::size_t i = 0; i < plan.training.size(); ++i) {
    const Operation& operation = plan.training[i];
    if (operation.kind == OperationKind::convolution) forward.push_back(operation.slice);
    if (operation.kind == OperationKind::dense) CHECK(operation.slices == 1);
    if (operation.kind == OperationKind::convolution_backward) {
      backward.push_back(operation.slice);
      last_backward = i;
    }
    if (operation.kind == OperationKind::contribute) contribution = i;
  }
  CHECK(forward.size() == 80);  // 40 examples through two convolutions
  CHECK(std::ranges::is_sorted(forward));
  CHECK(forward.back() == 39);
  CHECK(backward == forward);
  CHECK(contribution > last_backward);
}

TEST_CASE("Where a batch is too small for that, only the way to the first pooling runs slice by slice") {
  Graph graph = lower(Sequential{Input({12, 12, 1}), Conv2D(16, 3, {.activation = relu}), MaxPooling2D(),
                                 Conv2D(16, 3, {.activation = relu}), MaxPooling2D(), Flatten(), Dense(4)},
                      SparseCategoricalCrossentropy({.from_logits = true}), false);
  make_cpu_backend(1)->lay_out(graph, 40);
  const auto bytes_of = [&graph](std::size_t tensors) {
    std::size_t bytes = 0;
    for (std::size_t t = 1; t <= tensors; ++t) bytes += static_cast<std::size_t>(graph.tensors[t].elements()) * 4;
    return bytes;
  };
  graph.cache_bytes = 16 * bytes_of(4);  // three slices for the whole way
  const std::size_t rows = graph.cache_bytes / 5 / bytes_of(2);
  REQUIRE(rows < 8);
  const int slices = static_cast<int>((40 + rows - 1) / rows);
  const Plan plan = make_plan(std::move(graph));
  for (const Operation& operation : plan.training) {
    INFO(name_of(operation.kind) << " of layer " << operation.layer);
    const bool first = operation.kind == OperationKind::gather || operation.layer == 1 || operation.layer == 2;
    CHECK(operation.slices == (first && operation.id >= 0 ? slices : 1));
  }
  // Of these all slices share the memory: nobody reads what a convolution gave once it is pooled.
  CHECK(plan.graph.tensors[1].passing_rows ==
        (40 + static_cast<std::size_t>(slices) - 1) / static_cast<std::size_t>(slices));
  for (const std::size_t t : {0, 2, 3, 4}) CHECK(plan.graph.tensors[t].passing_rows == 0);
}
