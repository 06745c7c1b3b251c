// CUDA's elementwise functors, filter layouts, and the algorithm cache.
#include "backend/cuda/filter_layout.hpp"
#include "cuda_functors.hpp"

#include <array>
#include <numeric>

using namespace lockstep;
using namespace lockstep::cuda;

TEST_CASE("CUDA: activation derivatives match finite differences") {
  for (const ActivationFunction function : elementwise_functions()) {
    for (const float x : {-2.5F, -0.3F, 0.2F, 1.7F}) {
      const double h = 1e-3;
      const double slope = (activate(function, static_cast<float>(x + h)) -
                            static_cast<double>(activate(function, static_cast<float>(x - h)))) /
                           (2 * h);
      INFO(keras_name(function) << " at " << x);
      const float from = derivative_of(function) == Derivative::from_output ? activate(function, x) : x;
      CHECK(activation_gradient(function, from, 3.0F) == Approx(3 * slope).margin(2e-3));
    }
  }
  CHECK(activation_gradient(relu, 0.0F, 1.0F) == 0.0F);  // as on the CPU
}

TEST_CASE("CUDA: gather indexes examples and scales bytes in float32 and bfloat16") {
  const std::vector<std::uint8_t> bytes{0, 51, 102, 153, 204, 255};
  const std::vector<float> floats{0, 1, 2, 3, 4, 5};
  const std::array<std::uint32_t, 3> examples{2, 0, 2};
  StepArguments arguments{.inputs = bytes.data(), .examples = examples.data()};
  std::vector<float> found(6);
  for_each(6, Gather<std::uint8_t, float>{&arguments, found.data(), 2, 255, 1, 0});
  CHECK(found == std::vector<float>{0.8F, 1, 0, 0.2F, 0.8F, 1});
  arguments.inputs = floats.data();
  for_each(6, Gather<float, float>{&arguments, found.data(), 2, 1, 1, 0});
  CHECK(found == std::vector<float>{4, 5, 0, 1, 4, 5});
  for_each(6, Gather<float, float>{&arguments, found.data(), 2, 1, 0.5F, -1});
  CHECK(found == std::vector<float>{1, 1.5F, -1, -0.5F, 1, 1.5F});
  std::vector<BFloat16> low(6);
  for_each(6, Gather<float, BFloat16>{&arguments, low.data(), 2, 1, 1, 0});
  CHECK(static_cast<float>(low[1]) == 5.0F);
}

TEST_CASE("CUDA: Dropout applies the reference mask forward and backward") {
  constexpr Index elements = 11;
  constexpr Index rows = 5;
  RandomStream random = stream_of(1);
  const std::vector<float> x = random_floats(random, rows * elements);
  const StepArguments arguments{.seed = 9, .step = (1ULL << 33U) + 3, .batch_offset = 1000};
  const DropoutMask mask(9, arguments.step, 4, 0.3F);
  std::vector<float> y(x.size());
  std::vector<float> dx(x.size());
  for_each(rows * 3, DropoutQuad<float>{&arguments, x.data(), y.data(), nullptr, elements, 3, 4, 0.3F, relu});
  for_each(rows * 3, DropoutQuad<float>{&arguments, x.data(), dx.data(), x.data(), elements, 3, 4, 0.3F, relu});
  std::size_t dropped = 0;
  for (Index row = 0; row < rows; ++row) {
    for (Index e = 0; e < elements; ++e) {
      const std::size_t at = row * elements + e;
      const float expected = mask.keep(1000 + row, e) ? x[at] * mask.scale() : 0.0F;
      CHECK(y[at] == expected);
      CHECK(dx[at] == (x[at] > 0 ? expected : 0.0F));
      dropped += mask.keep(1000 + row, e) ? 0 : 1;
    }
  }
  CHECK(dropped > 0);
  CHECK(dropped < x.size());
}

TEST_CASE("CUDA: filter layout conversions round-trip") {
  const Shape shape{2, 3, 4, 5};
  std::vector<float> keras(120);
  std::iota(keras.begin(), keras.end(), 0.0F);
  std::vector<float> ours(120);
  std::vector<float> back(120);
  to_cudnn_layout(shape, keras, ours);
  // out 3, row 1, column 2, in 1
  CHECK(ours[((3 * 2 + 1) * 3 + 2) * 4 + 1] == keras[((1 * 3 + 2) * 4 + 1) * 5 + 3]);
  to_keras_layout(shape, ours, back);
  CHECK(back == keras);
}

TEST_CASE("CUDA: bias, activation and type conversion functors match their definitions") {
  const std::vector<float> bias{1, -10};
  const std::vector<float> from{1, 2, 3, 40};
  std::vector<float> to(4);
  for_each(4, AddBiasActivation<float, float>{from.data(), to.data(), bias.data(), 2, relu});
  CHECK(to == std::vector<float>{2, 0, 4, 30});
  std::vector<BFloat16> low(4);
  for_each(4, AddBiasActivation<float, BFloat16>{from.data(), low.data(), nullptr, 2, ActivationFunction::linear});
  CHECK(static_cast<float>(low[3]) == 40.0F);
  std::vector<float> gradient{1, 1, 1, 1};
  const std::vector<float> x{-1, -1, 5, -5};
  for_each(
      2, ActivationGradientColumns<float>{x.data(), gradient.data(), 1, 1, 2, relu});  // the second column of two rows
  CHECK(gradient == std::vector<float>{1, 0, 1, 0});
  for_each(4, ActivationGradient<float>{x.data(), from.data(), to.data(), relu});
  CHECK(to == std::vector<float>{0, 0, 3, 0});
}

TEST_CASE("CUDA: random numbers are spread over [-1, 1)") {
  std::vector<float> values(4096);
  for_each(values.size(), FillWithRandomNumbers<float>{values.data()});
  std::array<int, 8> counts{};
  for (const float value : values) {
    REQUIRE(value >= -1.0F);
    REQUIRE(value < 1.0F);
    ++counts[static_cast<std::size_t>((value + 1.0F) * 4.0F)];
  }
  for (const int count : counts) CHECK(std::abs(count - 512) < 100);
}
