// The CPU backend's layouts, oneDNN's choices of kernels, and limits.
#include "backend/make_backend.hpp"
#include "checked_model.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"
#include "support/models.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::vector<float> random_values(std::size_t count, std::uint64_t subject) {
  RandomStream random(1, RandomPurpose::test, subject);
  std::vector<float> values(count);
  for (float& value : values) value = random.uniform() + 1;
  return values;
}

}  // namespace

TEST_CASE("parameters round-trip through the arenas without touching their neighbours") {
  std::vector<Sequential> models{keras_mnist(), custom_training_mnist()};
  for (const int in : {1, 3, 16, 32, 33}) {
    for (const int out : {1, 5, 8, 16, 33, 64}) {
      models.push_back(Sequential{Input({6, 6, in}), Conv2D(out, 3), Conv2D(in, {1, 2}), MaxPooling2D(), Dropout(0.5),
                                  BatchNormalization(), Flatten(), Dense(17), Dense(out)});
    }
  }
  for (const Sequential& model : models) {
    INFO(describe(model));
    CheckedModel checked_model(model);
    const auto& parameters = checked_model.plan().graph.parameters;
    std::vector<float> arena(checked_model.arenas().elements, -1.0F);
    for (std::size_t p = 0; p + 1 < parameters.size(); ++p) {
      INFO(parameters[p].name);
      const std::vector<float> before = arena;
      const std::vector<float> values = random_values(static_cast<std::size_t>(parameters[p].info.shape.elements()), p);
      checked_model.executable().write_parameter(p, values, arena);
      CHECK(checked_model.read(p, arena) == values);
      std::size_t touched = 0;
      for (std::size_t i = 0; i < arena.size(); ++i) {
        const bool inside = i >= parameters[p].offset && i < parameters[p].offset + parameters[p].storage;
        if (!inside && arena[i] != before[i]) ++touched;
      }
      CHECK(touched == 0);
    }
    for (std::size_t p = 0; p + 1 < parameters.size(); ++p) {
      const std::vector<float> values = random_values(static_cast<std::size_t>(parameters[p].info.shape.elements()), p);
      CHECK(checked_model.read(p, arena) == values);
    }
  }
}

TEST_CASE("the MNIST models use no oneDNN reference kernels") {
  if (!__builtin_cpu_supports("avx2")) {
    WARN("skipped: this CPU has no AVX2");
    return;
  }
  std::vector<bool> precisions{false};
  try {
    make_cpu_backend(1)->require_bfloat16();
    precisions.push_back(true);
  } catch (const UsageError&) {
    WARN("bfloat16 skipped: this CPU has none");
  }
  for (const Sequential& model : {keras_mnist(), custom_training_mnist()}) {
    for (const std::size_t batch : {128, 96, 64, 48, 33, 1}) {
      for (const bool low : precisions) {
        CheckedModel checked_model(model, {.capacity = batch, .mixed_bfloat16 = low});
        for (std::size_t i = 0; i < checked_model.plan().compute.size(); ++i) {
          const Operation& operation = checked_model.plan().compute[i];
          const std::string name = checked_model.executable().implementation(i);
          INFO(to_string(operation.kind) << " of layer " << operation.layer << ", batch " << batch << ", "
                                         << (low ? "bfloat16" : "float32") << ": " << name);
          CHECK(!name.empty());
          CHECK(name.find("ref") == std::string::npos);
        }
      }
    }
  }
}

TEST_CASE("convolutions of any channel count and output layout use no oneDNN reference kernels") {
  if (!__builtin_cpu_supports("avx2")) {
    WARN("skipped: this CPU has no AVX2");
    return;
  }
  std::vector<Sequential> models;
  for (const int in : {1, 3, 16}) {
    for (const int filters : {6, 8, 15, 16, 20, 32}) {
      models.push_back(Sequential{Input({14, 14, in}), Conv2D(filters, 3, {.activation = relu}), MaxPooling2D(),
                                  Conv2D(16, 3), Flatten(), Dense(10)});
    }
  }
  models.push_back(Sequential{Input({14, 14, 1}), Conv2D(16, 3), Conv2D(32, 3)});
  models.push_back(
      Sequential{Input({14, 14, 1}), Conv2D(16, 3), Reshape({12, 6, 32}), Conv2D(16, 3), Flatten(), Dense(10)});
  models.push_back(Sequential{Input({14, 14, 3}), Conv2D(32, 3), Flatten(), BatchNormalization(), Dense(10)});
  for (const Sequential& model : models) {
    INFO(describe(model));
    const Loss loss =
        model.output_shape().rank() == 1 ? Loss(SparseCategoricalCrossentropy()) : Loss(MeanSquaredError());
    CheckedModel checked_model(model, {.loss = loss});
    for (std::size_t i = 0; i < checked_model.plan().compute.size(); ++i) {
      const Operation& operation = checked_model.plan().compute[i];
      const std::string name = checked_model.executable().implementation(i);
      INFO(to_string(operation.kind) << ": " << name);
      CHECK(name.find("ref") == std::string::npos);
    }
  }
}

TEST_CASE("a batch larger than the planned capacity throws") {
  CheckedModel checked_model(Sequential{Input({4}), Dense(2)}, {.capacity = 3});
  checked_model.train({3});
  CHECK_THROWS_AS(checked_model.train({4}), InternalError);
}

TEST_CASE("a rank without examples contributes zeros") {
  const Sequential model{Input({6, 6, 1}), Conv2D(16, 3), BatchNormalization(), Activation(relu), Flatten(),
                         Dense(70),        Dense(10)};
  CheckedModel checked_model(model, {.plan = {.chunk_bytes = 1024, .bucket_bytes = 256}});
  checked_model.train({8});
  const Plan& plan = checked_model.plan();
  StepContext nothing;
  nothing.training = true;
  std::fill(checked_model.arenas().gradients.begin(), checked_model.arenas().gradients.end(), 1.0F);
  std::vector<float> complete(checked_model.arenas().elements, 1.0F);  // nonzero, to see that zeros are written
  for (const PlanStep& step : plan.training) {
    if (const auto* compute = std::get_if<Compute>(&step)) checked_model.executable().run(compute->operation, nothing);
    const auto* ready = std::get_if<MarkReady>(&step);
    if (ready == nullptr) continue;
    const Range bucket = plan.buckets[ready->bucket];
    std::copy_n(checked_model.arenas().gradients.data() + bucket.begin, bucket.end - bucket.begin,
                complete.data() + bucket.begin);
  }
  for (const ParameterSpec& parameter : plan.graph.parameters) {
    INFO(parameter.name);
    for (std::size_t i = 0; i < parameter.storage; ++i) REQUIRE(complete[parameter.offset + i] == 0.0F);
  }
}

TEST_CASE("the backend describes its device") {
  const std::string text = make_cpu_backend(2)->describe();
  CHECK(text.find(", 2 threads, oneDNN ") != std::string::npos);
  CHECK(make_cpu_backend(1)->describe().find(", 1 thread, oneDNN ") != std::string::npos);
}
