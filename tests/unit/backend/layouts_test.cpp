// Which layouts and algorithms the backend chooses, that every layout gives right results, and that our own kernels'
// bits depend on neither microbatches nor threads.
#include "backend/cpu/convolution_table.hpp"
#include "backend/cpu/instruction_set.hpp"
#include "backend/make_backend.hpp"
#include "checked_model.hpp"
#include "graph/lower.hpp"
#include "support/catch.hpp"
#include "support/models.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::array forced_layouts{Layout::nhwc, Layout::nChw16c, Layout::nChw8c};
constexpr std::size_t batch = 64;

Graph laid_out(const Sequential& model, bool mixed_bfloat16, std::optional<Layout> layout = {}) {
  const Loss loss = model.output_shape().rank() == 1 ? Loss(SparseCategoricalCrossentropy({.from_logits = true}))
                                                     : Loss(MeanSquaredError());
  Graph graph = lower(model, loss, mixed_bfloat16 ? Precision::mixed_bfloat16 : Precision::float32);
  make_cpu_backend(1, layout)->lay_out(graph, batch);
  return graph;
}

const ConvolutionChoice& choice_of(const Graph& graph, const std::string& layer) {
  const auto found = std::ranges::find_if(graph.forward, [&](const Operation& operation) {
    return operation.kind == OperationKind::convolution && graph.layers[operation.layer].name == layer;
  });
  REQUIRE(found != graph.forward.end());
  return found->convolution;
}

bool has_bfloat16() { return instruction_set_in_use() >= InstructionSet::avx512_slow_bf16; }

/// Models that have every operation on images, in chains where layouts must change.
std::vector<Sequential> models() {
  const Conv2D first(32, 3, {.padding = Padding::same, .activation = relu});
  return {
      many_kinds_of_layers(),
      Sequential{Input({9, 8, 1}), first, MaxPooling2D(), Conv2D(16, 3, {.activation = activations::tanh}),
                 BatchNormalization(), Dropout(0.3), Flatten(), Dense(5)},
      Sequential{Input({9, 8, 3}), first, AveragePooling2D(), Activation(activations::tanh),
                 Conv2D(48, 3, {.padding = Padding::same, .activation = sigmoid}), GlobalAveragePooling2D(), Dense(5)},
      Sequential{Input({12, 12, 3}), Conv2D(16, 3), Conv2D(6, 3, {.activation = activations::tanh}), MaxPooling2D(),
                 Conv2D(16, 3), Flatten(), Dense(4)},
      Sequential{Input({12, 12, 1}), Conv2D(16, 3, {.strides = 2, .padding = Padding::same, .activation = sigmoid}),
                 Conv2D(32, 3, {.activation = activations::tanh}), Reshape({8, 8, 8}), Conv2D(16, 1), Flatten(),
                 Dense(4)},
      Sequential{Input({11, 12, 2}), Conv2D(32, Size2D(2, 3), {.dilation_rate = 2, .activation = relu}),
                 Conv2D(32, 3, {.padding = Padding::same}), Conv2D(16, 2)},
      Sequential{Input({6, 6, 3}), Conv2D(16, 1), DepthwiseConv2D(3, {.padding = "same", .activation = sigmoid}),
                 DepthwiseConv2D(5, {.strides = 2, .padding = Padding::same}),
                 SeparableConv2D(16, 2, {.padding = "same"}), GlobalAveragePooling2D({.keepdims = true}), Flatten(),
                 Dense(4)},
      Sequential{Input({5, 4, 16}), Conv2D(32, 2, {.groups = 2, .activation = activations::tanh}),
                 Conv2DTranspose(16, 3, {.strides = 2, .padding = Padding::same, .activation = sigmoid}),
                 DepthwiseConv2D(2, {.depth_multiplier = 2}), GlobalAveragePooling2D(), Dense(4)},
      Sequential{Input({6, 5, 1}), Conv2DTranspose(16, {3, 2}, {.strides = {3, 2}, .activation = activations::tanh}),
                 Conv2DTranspose(1, 3, {.activation = sigmoid})},
      Sequential{Input({20, 16}), Conv1D(16, 5, {.padding = "causal", .activation = activations::tanh}),
                 SeparableConv1D(16, 3, {.padding = Padding::same}), AveragePooling1D(), GlobalMaxPooling1D(),
                 Dense(3)},
      Sequential{Input({13, 11, 3}), first, Conv2D(48, 3, {.activation = relu}),
                 Conv2D(16, 3, {.padding = Padding::same, .activation = activations::tanh}), Conv2D(32, 3),
                 MaxPooling2D(), Flatten(), Dense(4)},
  };
}

void check(const Sequential& model, CheckedModelOptions options) {
  if (model.output_shape().rank() > 1) options.loss = MeanSquaredError();
  CheckedModel checked(model, options);
  checked.train({8});
  checked.infer(5);
  checked.train({3});
  checked.train({8});
}

}  // namespace

TEST_CASE("every operation matches the reference in every layout") {
  for (const Layout layout : forced_layouts) {
    for (const Sequential& model : models()) {
      for (const bool low : {false, true}) {
        if (low && !has_bfloat16()) continue;
        INFO(to_string(layout) << (low ? ", bfloat16: " : ", float32: ") << describe(model));
        CheckedModelOptions options{.mixed_bfloat16 = low, .layout = layout};
        if (low) options.tolerance = 0.25;  // max pooling and relu choose other sides after rounding
        check(model, options);
        options.cache_bytes = 1;  // microbatches of one example
        check(model, options);
        options.threads = 2;
        check(model, options);
      }
    }
  }
}

TEST_CASE("a forced layout is that of all tensors whose channels it divides") {
  for (const Layout layout : forced_layouts) {
    const Graph graph = laid_out(custom_training_mnist(), false, layout);
    for (const std::size_t tensor : {1, 2, 3, 4}) CHECK(graph.tensors[tensor].layout == layout);
    const bool has_wide_blocks =
        instruction_set_in_use() >= InstructionSet::avx512;  // AVX2's kernels write blocks of 8
    const Layout written = layout == Layout::nChw16c && !has_wide_blocks ? Layout::nChw8c : layout;
    CHECK(choice_of(graph, "conv2d_1").output == written);
  }
}

TEST_CASE("chains keep one layout, which depends on instruction set and type") {
  const Graph wide = laid_out(custom_training_mnist(), false);
  if (instruction_set_in_use() >= InstructionSet::avx512) {
    for (const std::size_t tensor : {1, 2, 3, 4}) CHECK(wide.tensors[tensor].layout == Layout::nChw16c);
  } else {  // AVX2's kernels for 3 x 3 windows read any layout and write blocks of 8
    CHECK(wide.tensors[2].layout == wide.tensors[1].layout);
    for (const std::size_t tensor : {3, 4}) CHECK(wide.tensors[tensor].layout == Layout::nChw8c);
  }
  if (!has_bfloat16()) return;
  const Graph low = laid_out(custom_training_mnist(), true);
  for (const std::size_t tensor : {2, 3, 4}) CHECK(low.tensors[tensor].layout == low.tensors[1].layout);
  const bool has_amx = instruction_set_in_use() == InstructionSet::amx_bf16;
  CHECK(low.tensors[1].layout == (has_amx ? Layout::nhwc : Layout::nChw16c));
  CHECK(choice_of(low, "conv2d").forward == ConvolutionAlgorithm::direct_few_channels);
  CHECK(choice_of(low, "conv2d_1").forward ==
        (has_amx ? ConvolutionAlgorithm::direct_nhwc : ConvolutionAlgorithm::winograd));
}

TEST_CASE("with AMX, bfloat16 convolutions and products of the MNIST programs use it") {
  if (instruction_set_in_use() != InstructionSet::amx_bf16) {
    WARN("skipped: this CPU has no AMX, or may not use it");
    return;
  }
  CheckedModel checked(custom_training_mnist(), {.capacity = batch, .mixed_bfloat16 = true, .layout = Layout::nhwc});
  for (std::size_t i = 0; i < checked.plan().compute.size(); ++i) {
    const Operation& operation = checked.plan().compute[i];
    const bool convolves =
        operation.kind == OperationKind::convolution || operation.kind == OperationKind::convolution_backward;
    if (!convolves || operation.input == 0) continue;
    INFO(to_string(operation.kind) << ": " << checked.executable().implementation(i));
    CHECK(checked.executable().implementation(i).find("amx") != std::string::npos);
  }
  CHECK(make_cpu_backend(1)->warnings(checked.plan().graph).empty());
}

TEST_CASE("a convolution in bfloat16 that leaves AMX unused is warned of") {
  if (instruction_set_in_use() != InstructionSet::amx_bf16) return;
  const Graph graph = laid_out(custom_training_mnist(), true, Layout::nChw16c);
  const auto warnings = make_cpu_backend(1, Layout::nChw16c)->warnings(graph);
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].find("layer 'conv2d_1' trains in bfloat16 without this CPU's matrix instructions (AMX)") == 0);
  CHECK(warnings[1].find("mixed_bfloat16 is expected to take ") == 0);
}

TEST_CASE("bfloat16 that is slower than float32 is warned of") {
  if (!has_bfloat16()) return;
  const auto warnings_with = [&](InstructionSet set, const Sequential& model, bool mixed_bfloat16) {
    const auto backend = make_cpu_backend(1, {}, Convolutions::automatic, set);
    Graph graph = lower(model, SparseCategoricalCrossentropy({.from_logits = true}),
                        mixed_bfloat16 ? Precision::mixed_bfloat16 : Precision::float32);
    backend->lay_out(graph, batch);
    return backend->warnings(graph);
  };
  const auto warnings = warnings_with(InstructionSet::avx512_slow_bf16, keras_mnist(), true);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("times as long as float32 on this CPU") != std::string::npos);
  CHECK(warnings_with(InstructionSet::avx512_slow_bf16, keras_mnist(), false).empty());
  if (instruction_set_in_use() == InstructionSet::avx512_bf16)
    CHECK(warnings_with(InstructionSet::avx512_bf16, keras_mnist(), true).empty());
}

TEST_CASE("3 x 3 convolutions take Winograd's algorithm where it is faster, unless they must be direct") {
  const auto uses_winograd = [](const Sequential& model, const std::string& layer, Convolutions convolutions,
                                std::size_t examples = batch) {
    Graph graph = lower(model, SparseCategoricalCrossentropy({.from_logits = true}), Precision::float32);
    make_cpu_backend(1, {}, convolutions)->lay_out(graph, examples);
    const ConvolutionChoice& choice = choice_of(graph, layer);
    const bool is_forward = choice.forward == ConvolutionAlgorithm::winograd;
    CHECK((choice.weights == ConvolutionAlgorithm::winograd) == is_forward);
    return is_forward;
  };
  const bool has_vectors = instruction_set_in_use() >= InstructionSet::avx2;
  CHECK(uses_winograd(custom_training_mnist(), "conv2d_1", Convolutions::automatic) == has_vectors);
  CHECK_FALSE(uses_winograd(custom_training_mnist(), "conv2d_1", Convolutions::direct));
  const auto second = [](std::int64_t size, const Conv2D& convolution) {
    return Sequential{Input({size, size, 3}), Conv2D(32, 1), convolution, Flatten(), Dense(4)};
  };
  CHECK(uses_winograd(second(14, Conv2D(64, 3, {.padding = Padding::same})), "conv2d_1", {}) == has_vectors);
  for (const Conv2D& other : {Conv2D(64, 5), Conv2D(64, 3, {.strides = 2}), Conv2D(64, 3, {.dilation_rate = 2}),
                              Conv2D(64, Size2D(3, 1)), Conv2D(60, 3)}) {
    CHECK_FALSE(uses_winograd(second(14, other), "conv2d_1", {}));
  }
  // A tile of one result needs more products than the result itself.
  CHECK_FALSE(uses_winograd(second(3, Conv2D(64, 3)), "conv2d_1", {}));
  // The transforms of 9 MB of weights pay for many images only.
  const Sequential wide{Input({3, 3, 3}), Conv2D(512, 1), Conv2D(512, 3, {.padding = Padding::same}),
                        GlobalAveragePooling2D(), Dense(4)};
  CHECK_FALSE(uses_winograd(wide, "conv2d_1", {}, 16));
  CHECK(uses_winograd(wide, "conv2d_1", {}, 128) == has_vectors);
}

TEST_CASE("bfloat16 convolutions whose transformed weights exceed the caches run directly where that is faster") {
  if (instruction_set_in_use() != InstructionSet::avx512_bf16) return;
  const auto uses_winograd = [](int channels, std::int64_t size, std::size_t examples, Precision precision) {
    const Sequential model{Input({size, size, 3}), Conv2D(channels, 1), Conv2D(channels, 3, {.padding = Padding::same}),
                           GlobalAveragePooling2D(), Dense(4)};
    Graph graph = lower(model, MeanSquaredError(), precision);
    make_cpu_backend(1, {}, Convolutions::automatic)->lay_out(graph, examples);
    return choice_of(graph, "conv2d_1").forward == ConvolutionAlgorithm::winograd;
  };
  for (const std::size_t examples : {16, 64, 128}) {
    CHECK_FALSE(uses_winograd(512, 7, examples, Precision::mixed_bfloat16));
    CHECK(uses_winograd(512, 7, examples, Precision::float32));
  }
  for (const auto& [channels, size] : {std::pair{64, 8}, {128, 12}, {256, 14}})
    CHECK(uses_winograd(channels, size, 16, Precision::mixed_bfloat16));
  CHECK_FALSE(uses_winograd(256, 6, 16, Precision::mixed_bfloat16));
}

TEST_CASE("convolutions outside of Winograd's algorithm take others, even where it is forced") {
  const bool has_vectors = instruction_set_in_use() >= InstructionSet::avx2;
  const auto uses_winograd = [](const Architecture& model, const std::string& layer) {
    Graph graph = lower(model, MeanSquaredError(), Precision::float32);
    make_cpu_backend(1, {}, Convolutions::winograd)->lay_out(graph, batch);
    return choice_of(graph, layer).forward == ConvolutionAlgorithm::winograd;
  };
  const auto behind_another = [](const Layer& layer) {
    return Sequential{Input({9, 8, 3}), Conv2D(32, 1), layer, GlobalAveragePooling2D(), Dense(4)};
  };
  CHECK(uses_winograd(behind_another(Conv2D(16, 3)), "conv2d_1") == has_vectors);
  CHECK(uses_winograd(behind_another(Conv2D(16, 3, {.padding = Padding::same})), "conv2d_1") == has_vectors);
  CHECK_FALSE(uses_winograd(behind_another(Conv2D(16, 3)), "conv2d"));
  for (const Conv2D& other :
       {Conv2D(16, 5), Conv2D(16, Size2D(3, 2)), Conv2D(16, 3, {.strides = Size2D(1, 2)}),
        Conv2D(16, 3, {.dilation_rate = 2}), Conv2D(32, 3, {.groups = 2}), Conv2D(17, 3), Conv2D(4, 3)})
    CHECK_FALSE(uses_winograd(behind_another(other), "conv2d_1"));
  CHECK_FALSE(uses_winograd(behind_another(DepthwiseConv2D(3)), "depthwise_conv2d"));
  CHECK_FALSE(uses_winograd(behind_another(Conv2DTranspose(32, 3)), "conv2d_transpose"));
  const Tensor input = Input({9, 8, 16});
  const Conv2D shared(16, 3, {.padding = Padding::same});
  CHECK_FALSE(uses_winograd(Functional(input, shared(shared(input))), "conv2d"));
  CHECK(uses_winograd(Functional(input, shared(input)), "conv2d") == has_vectors);
}

TEST_CASE("Winograd's algorithm trains residual blocks, frozen layers and what surrounds them") {
  const auto convolution = [](int channels, ActivationFunction activation) {
    return Conv2D(channels, 3, {.padding = Padding::same, .activation = activation});
  };
  const Tensor input = Input({9, 7, 3});
  const Tensor stem = BatchNormalization()(Conv2D(16, 1)(input));
  const Tensor block = BatchNormalization()(convolution(16, activations::tanh)(convolution(16, relu)(stem)));
  const Tensor merged = Activation(relu)(Add()({block, stem}));
  const Tensor pooled = Dropout(0.3)(MaxPooling2D()(convolution(32, relu)(merged)));
  const Functional residual(input, Dense(4)(GlobalAveragePooling2D()(convolution(16, sigmoid)(pooled))));
  const Sequential chain{Input({9, 10, 16}),
                         convolution(32, relu),
                         Conv2D(16, 3, {.activation = relu}),
                         MaxPooling2D(),
                         convolution(32, activations::tanh),
                         Dropout(0.2),
                         Flatten(),
                         Dense(4)};
  for (const Layout layout : {Layout::nChw16c, Layout::nChw8c}) {
    if (layout == Layout::nChw16c && instruction_set_in_use() < InstructionSet::avx512) continue;
    if (instruction_set_in_use() < InstructionSet::avx2) continue;
    for (const char* frozen : {"", "conv2d", "conv2d_1", "conv2d_2"}) {
      for (const std::size_t cache_bytes : {std::size_t{0}, std::size_t{1}}) {
        for (Architecture model : {Architecture(residual), Architecture(chain)}) {
          if (*frozen != 0) model.set_trainable(frozen, false);
          for (const bool low : {false, true}) {
            if (low && (!has_bfloat16() || layout != Layout::nChw16c)) continue;
            INFO(to_string(layout) << (low ? ", bfloat16" : "") << ", frozen: " << frozen << ", " << describe(model));
            CheckedModel checked(model, {.threads = cache_bytes == 0 ? 2 : 1,
                                         .mixed_bfloat16 = low,
                                         .cache_bytes = cache_bytes,
                                         .layout = layout,
                                         .convolutions = Convolutions::winograd,
                                         // Max pooling and relu choose other sides after rounding.
                                         .tolerance = low ? 0.25 : 1e-4});
            CHECK(choice_of(checked.plan().graph, "conv2d_1").forward == ConvolutionAlgorithm::winograd);
            checked.train({8});
            checked.infer(5);
            checked.train({3, 0, 2});
            checked.train({8});
          }
        }
      }
    }
  }
}

TEST_CASE("the table has rates for every pass, and oneDNN's rows are in order of instruction sets") {
  for (const ConvolutionRow& row : convolution_table()) {
    INFO(to_string(row.algorithm) << " from " << to_string(row.from));
    if (row.algorithm != ConvolutionAlgorithm::direct_depthwise) CHECK(row.forward_rate > 0);
    CHECK(row.weights_rate > 0);
    for (const ConvolutionRow& later : convolution_table()) {
      const bool is_same = later.algorithm == row.algorithm && later.type == row.type && later.input == row.input &&
                           later.output == row.output && later.kind == row.kind;
      if (is_same && &later > &row) CHECK(later.from > row.from);
    }
  }
}

TEST_CASE("weight gradients of our own convolutions have equal bits for any microbatches and threads") {
  struct Case {
    ConvolutionAlgorithm algorithm;
    Sequential model;
    std::size_t parameters;  ///< of the convolution and what it follows
    CheckedModelOptions options;
  };
  std::vector<Case> cases;
  if (has_bfloat16()) {
    cases.push_back(
        {ConvolutionAlgorithm::direct_few_channels,
         {Input({13, 11, 3}), Conv2D(48, 3, {.strides = Size2D(1, 2), .padding = Padding::same, .activation = relu}),
          MaxPooling2D(), Flatten(), Dense(4)},
         1,
         {.mixed_bfloat16 = true, .layout = Layout::nhwc, .tolerance = 0.1}});
  }
  if (instruction_set_in_use() >= InstructionSet::avx2) {
    cases.push_back(
        {ConvolutionAlgorithm::winograd,
         {Input({13, 11, 16}), Conv2D(48, 3, {.padding = Padding::same, .activation = relu}),
          Conv2D(32, 3, {.activation = relu}), MaxPooling2D(), Flatten(), Dense(4)},
         4,
         {.layout = instruction_set_in_use() >= InstructionSet::avx512 ? Layout::nChw16c : Layout::nChw8c}});
  }
  for (Case& its_case : cases) {
    std::vector<std::vector<float>> gradients;
    for (const auto& [cache_bytes, threads] :
         {std::pair(std::size_t{0}, 1), std::pair(std::size_t{1}, 1), std::pair(std::size_t{150000}, 2)}) {
      its_case.options.cache_bytes = cache_bytes;
      its_case.options.threads = threads;
      CheckedModel checked(its_case.model, its_case.options);
      checked.train({8});
      REQUIRE(choice_of(checked.plan().graph, "conv2d").weights == its_case.algorithm);
      std::vector<float>& all = gradients.emplace_back();
      for (std::size_t p = 0; p < its_case.parameters; ++p) {
        const std::vector<float> one = checked.read(p, checked.arenas().gradients);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
    INFO(to_string(its_case.algorithm));
    CHECK(gradients[1] == gradients[0]);
    CHECK(gradients[2] == gradients[0]);
  }
}

TEST_CASE("depthwise weight gradients have equal bits for any microbatches and threads") {
  const Sequential model{Input({13, 11, 16}), DepthwiseConv2D(5, {.strides = 2, .padding = Padding::same}), Flatten(),
                         Dense(4)};
  std::vector<std::vector<float>> gradients;
  for (const auto& [cache_bytes, threads] :
       {std::pair(std::size_t{0}, 1), std::pair(std::size_t{1}, 1), std::pair(std::size_t{4000}, 2)}) {
    CheckedModel checked(model, {.threads = threads, .cache_bytes = cache_bytes, .layout = Layout::nhwc});
    checked.train({8});
    REQUIRE(choice_of(checked.plan().graph, "depthwise_conv2d").weights == ConvolutionAlgorithm::direct_depthwise);
    gradients.push_back(checked.read(0, checked.arenas().gradients));
  }
  CHECK(gradients[1] == gradients[0]);
  CHECK(gradients[2] == gradients[0]);
}

TEST_CASE("a depthwise convolution of an input that a forced layout does not suit takes another layout") {
  const Sequential model{Input({12, 32}), SeparableConv1D(3, 5), GlobalMaxPooling1D(), Dense(4)};
  for (const Layout layout : {Layout::nhwc, Layout::nChw8c, Layout::nChw16c}) {
    CheckedModel checked(model, {.layout = layout});
    checked.train({8});
  }
}

TEST_CASE("depthwise and grouped convolutions of well-known models take fast kernels") {
  const auto depthwise = [](Size2D kernel, Size2D strides) {
    return DepthwiseConv2D(kernel, {.strides = strides, .padding = Padding::same});
  };
  const auto grouped = [](int filters, Size2D strides) {
    return Conv2D(filters, 3, {.strides = strides, .padding = Padding::same, .groups = 32});
  };
  const std::vector<std::pair<int, Layer>> layers{
      {32, depthwise(3, 1)},
      {24, depthwise(3, 2)},
      {144, depthwise(3, 2)},
      {1024, depthwise(3, 1)},
      {240, depthwise(5, 1)},
      {72, depthwise(5, 2)},
      {96, depthwise(7, 1)},
      {728, SeparableConv2D(728, 3)},
      {128, grouped(128, 1)},
      {256, grouped(256, 2)},
      {512, grouped(512, 1)},
      {1024, grouped(1024, 1)},
      {64, Conv2DTranspose(32, 2, {.strides = 2})},
  };
  for (const bool low : {false, true}) {
    if (low && !has_bfloat16()) continue;
    for (const auto& [channels, layer] : layers) {
      const Sequential model{Input({12, 12, 3}), Conv2D(channels, 1), layer, Conv2D(8, 1), GlobalAveragePooling2D()};
      CheckedModel checked(model, {.loss = MeanSquaredError(), .mixed_bfloat16 = low});
      for (std::size_t i = 0; i < checked.plan().compute.size(); ++i) {
        const Operation& operation = checked.plan().compute[i];
        if (operation.layer != 2) continue;
        const std::string implementation = checked.executable().implementation(i);
        INFO(describe(model) << to_string(operation.kind) << (low ? " bfloat16: " : ": ") << implementation);
        CHECK(implementation.find("ref") == std::string::npos);
        const Layout layout_of_output = checked.plan().graph.tensors[operation.output].layout;
        const bool has_own_loops = operation.groups == channels && layout_of_output != Layout::nChw8c;
        if (has_own_loops) CHECK(implementation.find("jit:") == std::string::npos);
      }
    }
  }
}

TEST_CASE("names of instruction sets are oneDNN's") {
  CHECK(instruction_set_from("AVX2") == InstructionSet::avx2);
  CHECK(instruction_set_from("avx512_core_vnni") == InstructionSet::avx512);
  CHECK(instruction_set_from("AVX512_CORE_FP16") == InstructionSet::avx512_bf16);
  CHECK_FALSE(instruction_set_from("ALL"));
  for (const std::string_view name : instruction_set_names) CHECK(to_string(*instruction_set_from(name)) == name);
  CHECK(instruction_set_in_use() == permitted_instruction_set());
}

TEST_CASE("workers use the smallest instruction set of all of them") {
  using enum InstructionSet;
  const auto common = [](std::vector<InstructionSet> sets) { return common_instruction_set(sets); };
  CHECK(common({amx_bf16}) == amx_bf16);
  CHECK(common({avx512_bf16, avx512_bf16}) == avx512_bf16);
  CHECK(common({avx512_bf16, avx512_slow_bf16}) == avx512_slow_bf16);
  CHECK(common({amx_bf16, avx512_bf16}) == avx512_slow_bf16);  // without AMX, that CPU's bfloat16 is slow
  CHECK(common({amx_bf16, avx2}) == avx2);
}
