// Tests of the choice among candidates, with kernels that fill more or less memory. The fake GPU's clock is the host's.
#include "backend/cuda/kernel.hpp"
#include "backend/make_backend.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/layer.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::cuda;

namespace {

constexpr std::size_t little = 1 << 10;
constexpr std::size_t much = 8 << 20;

/// Fills memory with zeros; the more, the slower.
class Fill final : public Kernel {
 public:
  Fill(const KernelScope& scope, std::string name, std::size_t bytes)
      : stream_(scope.cuda_context.stream()), name_(std::move(name)), memory_(bytes) {}
  void enqueue(const StepContext& /*context*/) override {
    check(cudaMemsetAsync(memory_.data(), 0, memory_.size(), stream_), "cudaMemsetAsync");
  }
  [[nodiscard]] std::string implementation() const override { return name_; }

 private:
  cudaStream_t stream_;
  std::string name_;
  DeviceBuffer memory_;
};

/// Waits for the device, which a capture forbids.
class Waiting final : public Kernel {
 public:
  explicit Waiting(const KernelScope& scope) : stream_(scope.cuda_context.stream()) {}
  void enqueue(const StepContext& /*context*/) override {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  [[nodiscard]] std::string implementation() const override { return "waiting"; }

 private:
  cudaStream_t stream_;
};

Candidate fill(const std::string& name, std::size_t bytes) {
  return {.make = [=](const KernelScope& scope) { return std::make_unique<Fill>(scope, name, bytes); }};
}

Candidate waiting() {
  return {.make = [](const KernelScope& scope) { return std::make_unique<Waiting>(scope); }};
}

Candidate failing() {
  return {.make = [](const KernelScope& /*scope*/) -> std::unique_ptr<Kernel> {
    throw InternalError("this candidate does not support the problem");
  }};
}

/// An operation that reads tensor 0 and writes tensor 1, and what chooses its kernel.
class Choice {
 public:
  explicit Choice(bool deterministic = false) : context_(streams_, {.deterministic = deterministic}) {
    graph_.layers.push_back({Dense(7), "Dense", "a_layer", Shape{15}, Shape{7}, {}});
    graph_.tensors.resize(2);
    graph_.tensors[0].channels = 15;
    graph_.tensors[1].channels = 7;
    graph_.parameters.push_back({.name = "a_layer/kernel",
                                 .info = {"kernel", Shape{15, 7}, Initializer::zeros, false},
                                 .storage = 105,
                                 .offset = 48});
    operation_.kind = OperationKind::dense;
    operation_.input = 0;
    operation_.output = 1;
    operation_.parameter = 0;
    operation_.num_parameters = 1;
    for (std::size_t t = 0; t < 2; ++t) buffers_.push_back({.value = zeros(400), .gradient = zeros(400)});
    arenas_.weights = {reinterpret_cast<float*>(zeros(1024)), 256};
    arenas_.gradients = {reinterpret_cast<float*>(zeros(1024)), 256};
  }

  std::string of(const std::vector<Candidate>& candidates, const ProblemKey& problem = {1}) {
    return make_fastest(scope(), problem, [&] { return candidates; })->implementation();
  }

  [[nodiscard]] KernelScope scope() const {
    return {{graph_, operation_, 0, 4, buffers_, arenas_}, nullptr, nullptr, context_};
  }

  /// Whether all of the model's memory is still zero.
  [[nodiscard]] bool is_untouched() const {
    for (const DeviceBuffer& buffer : memory_) {
      std::vector<std::byte> bytes(buffer.size());
      check(cudaMemcpy(bytes.data(), buffer.data(), buffer.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      for (const std::byte byte : bytes) {
        if (byte != std::byte{}) return false;
      }
    }
    return true;
  }

 private:
  std::byte* zeros(std::size_t bytes) { return memory_.emplace_back(bytes).data(); }

  DeviceStreams streams_;
  CudaContext context_;
  Graph graph_;
  Operation operation_;
  std::vector<DeviceBuffer> memory_;
  std::vector<TensorBuffers> buffers_;
  Arenas arenas_;
};

}  // namespace

TEST_CASE("the fastest candidate is taken, wherever it stands, and remembered") {
  Choice choice;
  CHECK(choice.of({fill("slow", much), fill("fast", little), fill("slower", 2 * much)}) == "fast");
  CHECK(choice.of({fill("fast", little), fill("slow", much)}, {2}) == "fast");
  CHECK(choice.of({fill("other", little)}) == "fast");  // the list is not asked for again
}

TEST_CASE("candidates that fail or cannot be captured are left out") {
  Choice choice;
  CHECK(choice.of({failing(), waiting(), fill("slow", much), failing()}) == "slow");
  CHECK(choice.of({failing(), fill("too large", std::size_t{1} << 40U), fill("fits", little)}, {2}) == "fits");
  CHECK(choice.of({failing(), waiting()}, {3}) == "waiting");  // better than none
  try {
    (void)choice.of({failing()}, {4});
    FAIL("a failing candidate was taken");
  } catch (const InternalError& error) {
    const std::string message = error.what();
    CHECK(message.find("a_layer") != std::string::npos);
    CHECK(message.find("does not support") != std::string::npos);
  }
}

TEST_CASE("with LOCKSTEP_CUDA_GRAPHS=0 nothing is captured for timing") {
  Choice choice;
  setenv("LOCKSTEP_CUDA_GRAPHS", "0", 1);  // NOLINT(concurrency-mt-unsafe): single-threaded
  const std::string chosen = choice.of({fill("slow", much), waiting()});
  unsetenv("LOCKSTEP_CUDA_GRAPHS");  // NOLINT(concurrency-mt-unsafe)
  CHECK(chosen == "waiting");
}

TEST_CASE("deterministic runs take the first deterministic candidate that works") {
  Choice choice(true);
  Candidate any_order = fill("any order", little);
  any_order.is_deterministic = false;
  CHECK(choice.of({any_order, failing(), fill("slow", much), fill("fast", little)}) == "slow");
}

TEST_CASE("candidates are timed on random numbers, in memory that is aligned as the model's") {
  struct Seen {
    std::vector<float> input, weights;
    bool aligned = false;
  };
  Choice choice;
  std::vector<Seen> seen;
  const KernelScope model = choice.scope();
  const Candidate looking{.make = [&](const KernelScope& scope) {
    Seen& its = seen.emplace_back(Seen{std::vector<float>(60), std::vector<float>(105)});
    check(cudaStreamSynchronize(scope.cuda_context.stream()), "cudaStreamSynchronize");
    check(cudaMemcpy(its.input.data(), scope.value<float>(0), 240, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaMemcpy(its.weights.data(), scope.weights(0), 420, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaMemsetAsync(scope.gradient<float>(1), 1, 112, scope.cuda_context.stream()), "cudaMemsetAsync");
    check(cudaMemsetAsync(scope.weights_gradient(0), 1, 420, scope.cuda_context.stream()), "cudaMemsetAsync");
    const auto address = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 256; };
    its.aligned = address(scope.weights(0)) == address(model.weights(0)) &&
                  address(scope.gradient<float>(1)) == address(model.gradient<float>(1));
    return std::make_unique<Fill>(scope, "looking", little);
  }};
  const auto is_random = [](const std::vector<float>& values) {
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const auto count = static_cast<double>(values.size());
    return std::abs(sum / count) < 0.3 && std::abs(squares / count - 1.0 / 3) < 0.15;  // uniform in [-1, 1)
  };
  const Candidate slow = fill("slow", much);
  bool untouched = false;
  const Candidate last{.make = [&](const KernelScope& scope) -> std::unique_ptr<Kernel> {
    check(cudaStreamSynchronize(scope.cuda_context.stream()), "cudaStreamSynchronize");
    untouched = choice.is_untouched();
    throw InternalError("only looks");
  }};
  CHECK(choice.of({looking, slow, last}) == "looking");
  CHECK(untouched);
  REQUIRE(seen.size() == 2);  // once on scratch memory, once on the model's
  CHECK(is_random(seen.front().input));
  CHECK(is_random(seen.front().weights));
  CHECK(seen.front().aligned);
  CHECK(seen.back().input == std::vector<float>(60));
}
