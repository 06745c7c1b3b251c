// Convolutions of all kinds against the reference: outputs, loss, and the gradients of all weights.
#include "checked_layers.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// One of each kind: none, a fused one of oneDNN, one that is not fused, one that is no elementwise function.
constexpr std::array some_functions{activations::linear, activations::relu, activations::elu, activations::silu,
                                    softmax};

struct ConvolutionCase {
  Size2D kernel;
  Size2D strides;
  Size2D dilation;
  Padding padding;
};

const std::array convolution_cases{
    ConvolutionCase{3, 1, 1, Padding::valid},     ConvolutionCase{3, 1, 1, Padding::same},
    ConvolutionCase{3, 2, 1, Padding::same},      ConvolutionCase{1, 1, 1, Padding::valid},
    ConvolutionCase{3, 2, 1, Padding::valid},     ConvolutionCase{{3, 2}, {2, 1}, 1, Padding::same},
    ConvolutionCase{3, 1, 2, Padding::same},      ConvolutionCase{2, 1, {1, 2}, Padding::valid},
    ConvolutionCase{5, {1, 3}, 1, Padding::same}, ConvolutionCase{{1, 4}, 1, {1, 2}, Padding::same},
    ConvolutionCase{4, 3, 1, Padding::same},      ConvolutionCase{{2, 3}, 1, {3, 2}, Padding::same},
};

}  // namespace

TEST_CASE("convolutions of all widths match the reference, first in a model and after another one") {
  std::size_t turn = 0;
  for (const int in : {1, 3, 5, 16, 32, 33}) {
    for (const int out : {1, 3, 5, 8, 16, 32, 33}) {
      const ConvolutionCase& c = convolution_cases[turn % convolution_cases.size()];
      const Conv2D conv(out, c.kernel,
                        {.strides = c.strides,
                         .padding = c.padding,
                         .dilation_rate = c.dilation,
                         .activation = functions[turn % functions.size()],
                         .use_bias = turn % 3 != 0});
      ++turn;
      INFO("turn " << turn);
      const CheckedModelOptions options{.pixels = turn % 2 == 0 ? Pixels::bytes : Pixels::floats};
      check(Sequential{Input({7, 6, in}), conv, Flatten(), Dense(3)}, options);
      check(Sequential{Input({7, 6, 2}), Conv2D(in, 1, {.activation = functions[turn % 4]}), conv, Flatten(), Dense(3)},
            options);
    }
  }
}

TEST_CASE("convolutions with every stride, dilation, padding and activation match the reference") {
  for (const ConvolutionCase& c : convolution_cases) {
    for (const ActivationFunction function : some_functions) {
      check(around({Conv2D(16, c.kernel,
                           {.strides = c.strides,
                            .padding = c.padding,
                            .dilation_rate = c.dilation,
                            .activation = function,
                            .use_bias = function != activations::relu})}));
    }
  }
}

// oneDNN 3.7 has a kernel that computes these wrong.
TEST_CASE("strided convolutions of one channel that yield a single column match the reference") {
  for (const int stride : {2, 3}) {
    for (const int rows : {1, 4}) {
      CAPTURE(stride, rows);
      check(Sequential{Input({6, 4, 1}), Conv2D(5, {rows, 3}, {.strides = {1, stride}}), Flatten(), Dense(4)});
    }
  }
}

TEST_CASE("grouped, depthwise, separable and transposed convolutions match the reference") {
  std::size_t turn = 0;
  for (const ConvolutionCase& c : convolution_cases) {
    const ActivationFunction function = functions[turn % functions.size()];
    const bool use_bias = turn % 3 != 0;
    const int multiplier = turn % 4 == 0 ? 2 : 1;
    const int channels = std::array{16, 5, 24, 32}[turn % 4];
    ++turn;
    INFO("turn " << turn);
    const std::vector<Layer> layers{
        Conv2D(2 * channels, c.kernel,
               {.strides = c.strides,
                .padding = c.padding,
                .dilation_rate = c.dilation,
                .groups = channels % 4 == 0 ? 4 : channels,
                .activation = function,
                .use_bias = use_bias}),
        DepthwiseConv2D(c.kernel, {.strides = c.strides,
                                   .padding = c.padding,
                                   .depth_multiplier = multiplier,
                                   .dilation_rate = c.dilation,
                                   .activation = function,
                                   .use_bias = use_bias}),
        SeparableConv2D(7, c.kernel,
                        {.strides = c.strides,
                         .padding = c.padding,
                         .dilation_rate = c.dilation,
                         .depth_multiplier = multiplier,
                         .activation = function,
                         .use_bias = use_bias}),
        Conv2DTranspose(6, c.kernel,
                        {.strides = c.strides,
                         .padding = c.padding,
                         .dilation_rate = c.dilation,
                         .activation = function,
                         .use_bias = use_bias}),
    };
    for (const Layer& layer : layers) {
      check(Sequential(std::vector<Layer>{Input({7, 6, 2}), Conv2D(channels, 1, {.activation = tanh_}), layer,
                                          Flatten(), Dense(3)}),
            {.threads = 1 + static_cast<int>(turn % 2)});
    }
  }
}

TEST_CASE("strided depthwise and grouped convolutions of one pixel match the reference on two threads") {
  for (const int channels : {3, 8, 24}) {
    check(Sequential{Input({9, 8, channels}), DepthwiseConv2D(1, {.strides = 2}), Conv2D(6, 1, {.strides = 2}),
                     Conv2D(9, 1, {.strides = 2, .groups = 3}), Flatten(), Dense(3)},
          {.threads = 2});
  }
}

TEST_CASE("strided 1 x 1 convolutions of few channels match the reference") {
  for (const int channels : {1, 3, 8, 16, 24}) {
    for (const int threads : {1, 2}) {
      CAPTURE(channels, threads);
      check(Sequential{Input({12, 12, 3}), Conv2D(channels, 3, {.padding = "same"}), Conv2D(16, 1, {.strides = 2}),
                       GlobalAveragePooling2D(), Dense(3)},
            {.threads = threads});
    }
  }
}
