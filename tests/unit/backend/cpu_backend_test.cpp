// The CPU backend beyond the mathematics: layouts and their way back to Keras' order, oneDNN's choices, limits.
#include "backend/make_backend.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"
#include "support/models.hpp"
#include "twin.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
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

TEST_CASE("Parameters come back from the arenas bit by bit, and leave their neighbours alone") {
  std::vector<Sequential> models{keras_mnist(), custom_training_mnist()};
  for (const int in : {1, 3, 16, 32, 33}) {
    for (const int out : {1, 5, 8, 16, 33, 64}) {
      models.push_back(Sequential{Input({6, 6, in}), Conv2D(out, 3), Conv2D(in, {1, 2}), MaxPooling2D(), Dropout(0.5),
                                  BatchNormalization(), Flatten(), Dense(17), Dense(out)});
    }
  }
  for (const Sequential& model : models) {
    INFO(describe(model));
    Twin twin(model);
    const auto& parameters = twin.plan().graph.parameters;
    std::vector<float> arena(twin.arenas().elements, -1.0F);
    for (std::size_t p = 0; p + 1 < parameters.size(); ++p) {
      INFO(parameters[p].name);
      const std::vector<float> before = arena;
      const std::vector<float> values = random_values(static_cast<std::size_t>(parameters[p].info.shape.elements()), p);
      twin.executable().write_parameter(p, values, arena);
      CHECK(twin.read(p, arena) == values);
      std::size_t touched = 0;
      for (std::size_t i = 0; i < arena.size(); ++i) {
        const bool inside = i >= parameters[p].offset && i < parameters[p].offset + parameters[p].storage;
        if (!inside && arena[i] != before[i]) ++touched;
      }
      CHECK(touched == 0);
    }
    for (std::size_t p = 0; p + 1 < parameters.size(); ++p) {
      const std::vector<float> values = random_values(static_cast<std::size_t>(parameters[p].info.shape.elements()), p);
      CHECK(twin.read(p, arena) == values);
    }
  }
}

TEST_CASE("No operation of the MNIST models falls to oneDNN's reference code") {
  if (!__builtin_cpu_supports("avx2")) {
    WARN("left out: this CPU has no AVX2");
    return;
  }
  std::vector<bool> precisions{false};
  try {
    make_cpu_backend(1)->require_bfloat16();
    precisions.push_back(true);
  } catch (const UsageError&) {
    WARN("bfloat16 left out: this CPU has none");
  }
  for (const Sequential& model : {keras_mnist(), custom_training_mnist()}) {
    for (const std::size_t batch : {128, 96, 64, 48, 33, 1}) {
      for (const bool low : precisions) {
        Twin twin(model, {.capacity = batch, .mixed_bfloat16 = low});
        for (const Operation& operation : twin.plan().compute) {
          const std::string name = twin.executable().implementation(operation);
          INFO(name_of(operation.kind) << " of layer " << operation.layer << ", batch " << batch << ", "
                                       << (low ? "bfloat16" : "float32") << ": " << name);
          CHECK(!name.empty());
          CHECK(name.find("ref") == std::string::npos);
        }
      }
    }
  }
}

TEST_CASE("Nor does any convolution with few, odd or mixed channels, or one whose output lies in Keras' order") {
  if (!__builtin_cpu_supports("avx2")) {
    WARN("left out: this CPU has no AVX2");
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
    Twin twin(model, {.loss = loss});
    for (const Operation& operation : twin.plan().compute) {
      const std::string name = twin.executable().implementation(operation);
      INFO(name_of(operation.kind) << ": " << name);
      CHECK(name.find("ref") == std::string::npos);
    }
  }
}

TEST_CASE("A slice larger than memory was made for is refused") {
  Twin twin(Sequential{Input({4}), Dense(2)}, {.capacity = 3});
  twin.train({3});
  CHECK_THROWS_AS(twin.train({4}), InternalError);
}

TEST_CASE("A rank without examples contributes zeros") {
  const Sequential model{Input({6, 6, 1}), Conv2D(16, 3), BatchNormalization(), Activation(relu), Flatten(),
                         Dense(70),        Dense(10)};
  Twin twin(model, {.plan = {.chunk_bytes = 1024, .bucket_bytes = 256}});
  twin.train({8});
  const Plan& plan = twin.plan();
  StepContext nothing;
  nothing.training = true;
  std::fill(twin.arenas().gradients.begin(), twin.arenas().gradients.end(), 1.0F);
  std::vector<float> complete(twin.arenas().elements, 1.0F);  // as they are when their bucket is contributed
  for (const Operation& operation : plan.training) {
    if (operation.id >= 0) twin.executable().run(operation, nothing);
    if (operation.kind != OperationKind::contribute) continue;
    const BucketRange bucket = plan.buckets[static_cast<std::size_t>(operation.bucket)];
    std::copy_n(twin.arenas().gradients.data() + bucket.begin, bucket.end - bucket.begin,
                complete.data() + bucket.begin);
  }
  for (const ParameterSpec& parameter : plan.graph.parameters) {
    INFO(parameter.name);
    for (std::size_t i = 0; i < parameter.storage; ++i) REQUIRE(complete[parameter.offset + i] == 0.0F);
  }
}

TEST_CASE("The backend says what it runs on") {
  const std::string text = make_cpu_backend(2)->describe();
  CHECK(text.find(", 2 threads, oneDNN ") != std::string::npos);
  CHECK(make_cpu_backend(1)->describe().find(", 1 thread, oneDNN ") != std::string::npos);
}
