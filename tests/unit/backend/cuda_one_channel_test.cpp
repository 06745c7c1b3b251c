// CUDA's functors of convolutions with one channel, against the direct convolution's.
#include "backend/cuda/one_channel_convolution_functors.hpp"
#include "cuda_functors.hpp"

using namespace lockstep;
using namespace lockstep::cuda;

namespace {

/// Shapes that differ in all numbers: image, output, filters, kernel, strides, dilation, padding.
template <int size>
std::vector<ConvolutionShape> shapes() {
  std::vector<ConvolutionShape> all;
  const auto add = [&](int filters, int stride, int dilation, int above, int before) {
    const int reach = (size - 1) * dilation;
    const auto outputs = [&](int input, int padding) { return (input + padding - reach - 1) / stride + 1; };
    all.push_back({11, 13, 1, outputs(11, 2 * above), outputs(13, 2 * before), filters, size, size, stride, stride,
                   dilation, dilation, above, before});
  };
  add(32, 1, 1, 0, 0);
  add(5, 1, 1, size / 2, size / 2);
  add(3, 2, 1, 1, 0);
  add(7, 1, 2, 0, 1);
  return all;
}

struct Images {
  std::vector<float> x, kernel, bias, y, gradient;
};

constexpr std::size_t num_images = 3;

Images images_of(const ConvolutionShape& s, RandomStream& random) {
  const auto outputs = num_images * static_cast<std::size_t>(s.out_height * s.out_width * s.filters);
  const auto filters = static_cast<std::size_t>(s.filters);
  return {random_floats(random, num_images * static_cast<std::size_t>(s.height * s.width)),
          random_floats(random, filters * static_cast<std::size_t>(s.kernel_height * s.kernel_width)),
          random_floats(random, filters), random_floats(random, outputs), random_floats(random, outputs)};
}

template <int size>
void check_forward() {
  RandomStream random = stream_of(size);
  for (const ConvolutionShape& s : shapes<size>()) {
    const Images images = images_of(s, random);
    for (const float* bias : {images.bias.data(), static_cast<const float*>(nullptr)}) {
      std::vector<float> expected(images.y.size());
      std::vector<float> y(images.y.size());
      for_each(y.size(), DirectForward<float, float>{s, images.x.data(), images.kernel.data(), bias, expected.data(),
                                                     ActivationFunction("relu")});
      for_each(num_images * static_cast<std::size_t>(s.out_height * s.filters),
               OneChannelForward<float, float, size>{s, images.x.data(), images.kernel.data(), bias, y.data(),
                                                     ActivationFunction("relu")});
      CHECK(error_of(y, expected) < 1e-6);
    }
  }
}

template <int size>
void check_weights(ActivationFunction derived) {
  constexpr int taps = size * size;
  RandomStream random = stream_of(10 + size);
  for (const ConvolutionShape& s : shapes<size>()) {
    const Images images = images_of(s, random);
    const auto filters = static_cast<std::size_t>(s.filters);
    std::vector<float> masked(images.y.size());
    std::vector<double> expected_bias(filters);
    for (std::size_t i = 0; i < masked.size(); ++i) {
      masked[i] = activation_gradient(derived, images.y[i], images.gradient[i]);
      expected_bias[i % filters] += masked[i];
    }
    std::vector<double> expected(filters * taps);
    const DirectWeightsTerm<float> term{s, images.x.data(), masked.data()};
    for (std::size_t element = 0; element < expected.size(); ++element) {
      for (std::size_t pixel = 0; pixel < masked.size() / filters; ++pixel) {
        expected[element] += term(static_cast<Index>(element), static_cast<Index>(pixel));
      }
    }
    const OneChannelWeightsTerms<float, size> terms{s, images.x.data(), images.y.data(), images.gradient.data(),
                                                    derived};
    std::vector<float> kernel(expected.size());
    std::vector<float> bias(filters);
    const StoreOneChannelSum store{taps, kernel.data(), bias.data()};
    for (Index filter = 0; filter < filters; ++filter) {
      std::array<float, taps + 1> sums{};
      for (Index row = 0; row < num_images * static_cast<std::size_t>(s.out_height); ++row) {
        terms(row, filter, sums.data());
      }
      for (Index k = 0; k < sums.size(); ++k) store(filter * (taps + 1) + k, sums[k]);
    }
    CHECK(error_of(kernel, expected) < 1e-5);
    CHECK(error_of(bias, expected_bias) < 1e-5);
  }
}

}  // namespace

TEST_CASE("CUDA: convolutions of one channel match the direct convolution") {
  check_forward<3>();
  check_forward<5>();
}

TEST_CASE("CUDA: the weights' gradients of convolutions of one channel match the direct convolution's") {
  check_weights<3>(ActivationFunction("relu"));
  check_weights<5>(ActivationFunction("tanh"));
  check_weights<3>(ActivationFunction::linear);
}
