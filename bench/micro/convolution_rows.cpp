// See convolution_rows.hpp.
#include "micro/convolution_rows.hpp"

#include "backend/cpu/instruction_set.hpp"
#include "backend/cpu/onednn.hpp"
#include "backend/cpu/winograd/passes.hpp"
#include "core/aligned_buffer.hpp"
#include "core/bfloat16.hpp"
#include "graph/tensor_spec.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace lockstep::bench {

namespace {

using dnnl::memory;

enum class Pass { forward, data, weights };
constexpr std::array pass_names{"forward", "data", "weights"};

struct Problem {
  std::int64_t images, channels, out_channels, size, padding;

  [[nodiscard]] winograd::Geometry geometry() const {
    const std::int64_t out = size + 2 * padding - 2;
    return {size, size, channels, out, out, out_channels, padding, padding};
  }
};

/// ResNet-20's shapes, custom_training_mnist's, VGG16's and ResNet-50's.
constexpr std::array problems{Problem{8, 16, 16, 32, 1},    Problem{8, 32, 32, 16, 1},   Problem{8, 32, 64, 13, 0},
                              Problem{16, 64, 64, 8, 1},    Problem{8, 64, 64, 24, 1},   Problem{8, 64, 64, 56, 1},
                              Problem{16, 128, 128, 12, 1}, Problem{16, 256, 256, 6, 1}, Problem{16, 256, 256, 14, 1},
                              Problem{16, 512, 512, 3, 1},  Problem{16, 512, 512, 7, 1}};

bool has_avx512() { return instruction_set_in_use() >= InstructionSet::avx512; }

/// Tensors of random values as large as a problem's, in the blocked layout of the instruction set.
struct Tensors {
  Tensors(const Problem& its_problem, ElementType its_type)
      : problem(its_problem), geometry(its_problem.geometry()), type(its_type) {
    fill(weights.as<float>());
    for (const AlignedBuffer* buffer : {&x, &y}) {
      if (type == ElementType::bfloat16) {
        fill(buffer->as<BFloat16>());
      } else {
        fill(buffer->as<float>());
      }
    }
  }

  template <typename T>
  void fill(std::span<T> values) {
    for (T& value : values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8U) * 0x1p-23F - 1.0F;
    }
  }

  static AlignedBuffer floats(std::int64_t count) {
    return AlignedBuffer(static_cast<std::size_t>(count) * sizeof(float));
  }
  [[nodiscard]] winograd::Images images(const AlignedBuffer& buffer) const {
    if (type == ElementType::bfloat16) return buffer.as<BFloat16>().data();
    return buffer.as<float>().data();
  }
  [[nodiscard]] memory::desc descriptor(std::int64_t channels, std::int64_t height) const {
    const auto tag = has_avx512() ? memory::format_tag::nChw16c : memory::format_tag::nChw8c;
    return {{problem.images, channels, height, height}, data_type(), tag};
  }

  [[nodiscard]] memory::data_type data_type() const {
    return type == ElementType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  }

  Problem problem;
  winograd::Geometry geometry;
  ElementType type;
  std::uint32_t state = 1;
  AlignedBuffer x = floats(problem.images * geometry.elements());
  AlignedBuffer y = floats(problem.images * geometry.out_elements());
  AlignedBuffer weights = floats(9 * geometry.channels * geometry.out_channels);
};

/// One pass of our own kernels, transforms of weights included.
std::function<void()> own(const std::shared_ptr<Tensors>& tensors, Pass pass) {
  const winograd::Geometry g = pass == Pass::data ? tensors->geometry.flipped() : tensors->geometry;
  const auto components = std::make_shared<AlignedBuffer>(Tensors::floats(g.weight_elements()));
  const auto scratch = std::make_shared<AlignedBuffer>(winograd::scratch_elements(g, 1) * sizeof(float));
  const winograd::Resources resources{has_avx512() ? winograd::avx512_kernels() : winograd::avx2_kernels(),
                                      scratch->as<float>().data(), 1};
  return [=] {
    const winograd::Images x = tensors->images(tensors->x);
    const winograd::Images y = tensors->images(tensors->y);
    float* const weights = tensors->weights.as<float>().data();
    float* const transformed = components->as<float>().data();
    const std::int64_t images = tensors->problem.images;
    if (pass == Pass::weights) {
      std::ranges::fill(components->as<float>(), 0.0F);
      add_weight_gradients(resources, g, images, x, y, transformed);
      transform_weight_gradients(resources, g, transformed, weights);
      return;
    }
    transform_weights(resources, g, weights, pass == Pass::data, transformed);
    convolve(resources, g, images, pass == Pass::data ? y : x, transformed, {}, pass == Pass::data ? x : y);
    static_cast<void>(scratch);
  };
}

memory weights_as(const memory::desc& layout, const onednn::Context& context) {
  memory weights(layout, context.engine);
  std::fill_n(static_cast<float*>(weights.get_data_handle()), layout.get_size() / sizeof(float), 0.1F);
  return weights;
}

/// The same by oneDNN. Throws dnnl::error where it has no such kernel.
std::function<void()> library(const std::shared_ptr<Tensors>& tensors, Pass pass, onednn::Algorithm algorithm) {
  const onednn::Context context;
  const Problem& p = tensors->problem;
  const memory::desc source = tensors->descriptor(p.channels, p.size);
  const memory::desc result = tensors->descriptor(p.out_channels, tensors->geometry.out_height);
  const memory::desc kernel({p.out_channels, p.channels, 3, 3}, tensors->data_type(), memory::format_tag::any);
  const onednn::Geometry padding{{1, 1}, {0, 0}, {p.padding, p.padding}, {p.padding, p.padding}};
  const memory x(source, context.engine, tensors->x.data());
  const memory y(result, context.engine, tensors->y.data());
  const auto forward = [&](onednn::Algorithm its) {
    return onednn::convolution_forward(context, source, kernel, {}, result, padding, dnnl::algorithm::undef, its);
  };
  const auto hint = forward(onednn::Algorithm::direct);
  onednn::BoundPrimitive bound;
  if (pass == Pass::forward) {
    const auto described = forward(algorithm);
    const memory weights = weights_as(described.weights_desc(), context);
    bound = {context,
             dnnl::convolution_forward(described),
             {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, y}}};
  } else if (pass == Pass::data) {
    const auto described = onednn::convolution_backward_data(context, source, kernel, result, padding, hint, algorithm);
    const memory weights = weights_as(described.weights_desc(), context);
    bound = {context,
             dnnl::convolution_backward_data(described),
             {{DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_SRC, x}}};
  } else {
    const auto described =
        onednn::convolution_backward_weights(context, source, kernel, {}, result, padding, hint, algorithm);
    const memory weights(described.diff_weights_desc(), context.engine);
    bound = {context,
             dnnl::convolution_backward_weights(described),
             {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_WEIGHTS, weights}}};
  }
  return [tensors, bound] { bound.run(); };
}

void add_row(const Problem& problem, Pass pass, const std::string& algorithm, ElementType type) {
  const std::string name = fmt::format("convolution/{}x{}->{}x{}/{}/{}{}", problem.images, problem.channels,
                                       problem.out_channels, problem.size, pass_names[static_cast<std::size_t>(pass)],
                                       algorithm, type == ElementType::bfloat16 ? "_bfloat16" : "");
  benchmark::RegisterBenchmark(name.c_str(), [problem, pass, algorithm, type](benchmark::State& state) {
    const auto tensors = std::make_shared<Tensors>(problem, type);
    std::function<void()> run;
    try {
      if (algorithm == "winograd") {
        run = own(tensors, pass);
      } else {
        const bool is_winograd = algorithm == "onednn_winograd";
        run = library(tensors, pass, is_winograd ? onednn::Algorithm::winograd : onednn::Algorithm::direct);
      }
    } catch (const dnnl::error&) {
      state.SkipWithError("oneDNN does not implement this kernel on this CPU");
      return;
    }
    run();  // oneDNN 3 allocates in the first run
    for (auto unused : state) {
      static_cast<void>(unused);
      run();
    }
    const winograd::Geometry& g = tensors->geometry;
    const std::int64_t multiply_adds = 9 * problem.images * g.out_height * g.out_width * g.channels * g.out_channels;
    state.counters["direct_mac"] =
        benchmark::Counter(static_cast<double>(multiply_adds), benchmark::Counter::kIsIterationInvariantRate);
  })->Unit(benchmark::kMillisecond);
}

}  // namespace

void add_convolution_rows() {
  for (const Problem& problem : problems) {
    for (const Pass pass : {Pass::forward, Pass::data, Pass::weights}) {
      add_row(problem, pass, "onednn_direct", ElementType::float32);
      if (onednn::has_winograd() && problem.size >= 8) add_row(problem, pass, "onednn_winograd", ElementType::float32);
      if (instruction_set_in_use() >= InstructionSet::avx2) add_row(problem, pass, "winograd", ElementType::float32);
      if (!onednn::has_bfloat16()) continue;
      add_row(problem, pass, "onednn_direct", ElementType::bfloat16);
      add_row(problem, pass, "winograd", ElementType::bfloat16);
    }
  }
}

}  // namespace lockstep::bench
