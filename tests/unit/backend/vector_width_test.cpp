// Our own loops give the same bits in every width that they are compiled for. oneDNN's kernels do not change here: they
// follow ONEDNN_MAX_CPU_ISA.
#include "core/vector_width.hpp"

#include "checked_model.hpp"
#include "core/digest.hpp"
#include "support/catch.hpp"
#include "support/optimizers.hpp"

#include <lockstep/layers/sequential.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

/// The width that vector_width() returns in this program; by default the widest.
lockstep::VectorWidth& tested_width() {
  static lockstep::VectorWidth width = __builtin_cpu_supports("avx512bw") != 0 ? lockstep::VectorWidth::avx512
                                       : __builtin_cpu_supports("avx2") != 0   ? lockstep::VectorWidth::avx2
                                                                               : lockstep::VectorWidth::baseline;
  return width;
}

}  // namespace

lockstep::VectorWidth lockstep::vector_width() noexcept { return tested_width(); }

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// A digest of weights and slots after some steps in this width.
std::string train(VectorWidth width, const Sequential& model, const CheckedModelOptions& options) {
  const VectorWidth before = std::exchange(tested_width(), width);
  CheckedModel checked(model, options);
  for (int step = 0; step < 3; ++step) checked.train({3, 2});
  tested_width() = before;
  Digest digest;
  digest.add(checked.arenas().weights.data(), checked.arenas().weights.size_bytes());
  digest.add(checked.arenas().slots.data(), checked.arenas().slots.size_bytes());
  return digest.to_string();
}

}  // namespace

TEST_CASE("every vector width gives the same bits") {
  const VectorWidth widest = tested_width();
  if (widest == VectorWidth::baseline) {
    WARN("skipped: this CPU has no AVX2");
    return;
  }
  // No convolution of few channels: its kernels belong to an instruction set.
  const std::vector<Sequential> models{
      Sequential{Input({8, 8, 5}), Conv2D(16, 3, {.activation = activations::tanh}), AveragePooling2D(),
                 BatchNormalization(), Dropout(0.3), Conv2D(32, 2, {.activation = sigmoid}), Flatten(),
                 Dense(300, {.activation = activations::tanh}), Dropout(0.5), Dense(4)},
      // Overlapping windows, odd channel counts, ReLU behind a pooling.
      Sequential{Input({9, 9, 7}), Conv2D(19, 3), MaxPooling2D(3, {.strides = 2}), Activation(relu),
                 BatchNormalization(), Flatten(), Dense(7, {.activation = relu}), Dense(3)}};
  const std::vector<Optimizer> optimizers = complete({
      SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}),
      Adam({.learning_rate = 0.01, .clipnorm = 0.3}),
      RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true, .clipvalue = 0.01}),
  });
  for (const Sequential& model : models) {
    for (const Optimizer& optimizer : optimizers) {
      for (const Pixels pixels : {Pixels::floats, Pixels::bytes}) {
        CAPTURE(describe(model), optimizer.index(), pixels == Pixels::bytes);
        const CheckedModelOptions options{.optimizer = optimizer, .pixels = pixels, .tolerance = 0.9};
        const std::string narrow = train(VectorWidth::baseline, model, options);
        CHECK(train(VectorWidth::avx2, model, options) == narrow);
        CHECK(train(widest, model, options) == narrow);
      }
    }
  }
}
