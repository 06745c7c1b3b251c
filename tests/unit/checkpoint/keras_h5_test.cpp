// Whole-model HDF5 files round-trip bit for bit. tests/interop checks that real Keras reads these files and that
// Lockstep reads Keras' files.
#include "checkpoint/keras/keras_h5.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/hdf5/hdf5_digest.hpp"
#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/hdf5/hdf5_writer.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "core/random.hpp"
#include "core/variant_types.hpp"
#include "dense_model.hpp"
#include "layers/layer_registry.hpp"
#include "optimizers/optimizer_registry.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/optimizers.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <hdf5.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("layers that random models do not draw round-trip") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "model.h5";
  const Tensor input = Input({5});
  const Tensor x = LayerScale(0.25, 4)(Embedding(7, 4, {.embeddings_initializer = "random_normal"})(input));
  const Tensor bins = Discretization({-0.25, 0.5, 1.5})(input);
  const Tensor counts = CategoryEncoding(4, {.output_mode = OutputMode::count})(bins);
  const Tensor sum = Flatten()(CustomScaleLayer(0.5)({x, x}));
  ModelData model{.architecture = Functional(input, Concatenate()({sum, Rescaling(1)(bins), counts})),
                  .weights = {},
                  .compile_state = {}};
  model.weights = weights_for(model.architecture);
  for (NamedTensor& weight : model.weights)
    weight.values.assign(static_cast<std::size_t>(weight.shape.elements()), 0.5F);
  save_keras_h5(file, model);
  std::string why;
  const bool same = equal(model, load_keras_h5(file), why);
  CAPTURE(why);
  CHECK(same);
}

TEST_CASE("augmentations round-trip") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "model.h5";
  const WarpOptions warp{.fill_mode = FillMode::constant, .interpolation = Interpolation::nearest, .fill_value = 0.5};
  ModelData model{.architecture = Sequential{Input({5, 4, 3}), RandomFlip({.mode = FlipMode::vertical}),
                                             RandomTranslation(0.25, {0.125, 0.5}, warp), RandomRotation(0.25, warp),
                                             RandomZoom(0.25), RandomZoom(0.5, {.width_factor = RandomFactor(-0.5, 0)}),
                                             RandomContrast(0.25), RandomBrightness(0.5, {.value_range = {-1, 1}})},
                  .weights = {},
                  .compile_state = {}};
  save_keras_h5(file, model);
  std::string why;
  const bool same = equal(model, load_keras_h5(file), why);
  CAPTURE(why);
  CHECK(same);
}

TEST_CASE("random models round-trip bit for bit") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "model.h5";
  std::set<std::string> unseen;
  for (const std::string_view layer : layer_class_names())
    if (!reads_data(layer) && module_of(layer) == "keras.layers") unseen.emplace(layer);
  std::set<std::string_view> settings;
  const std::size_t all_settings =
      num_alternatives<Optimizer> + num_alternatives<LearningRate::Kind> + num_alternatives<Loss>;
  // 200 models see almost all of them. A new layer changes what every seed draws, so the number is not fixed.
  for (std::uint64_t seed = 0; seed < 200 || !unseen.empty() || settings.size() < all_settings; ++seed) {
    CAPTURE(unseen, settings);
    REQUIRE(seed < 2000);
    const ModelData model = random_model(seed);
    save_keras_h5(file, model);
    const ModelData back = load_keras_h5(file);
    std::string why;
    INFO("seed " << seed << ": " << why);
    const bool same = equal(model, back, why);
    CAPTURE(why);
    REQUIRE(same);
    for (const LayerInfo& layer : model.architecture.layers()) unseen.erase(layer.class_name);
    if (!model.compile_state) continue;
    settings.insert(keras_name(model.compile_state->optimizer));
    settings.insert(keras_name(learning_rate_of(model.compile_state->optimizer)));
    settings.insert(keras_name(model.compile_state->loss));
  }
}

TEST_CASE("all float bit patterns round-trip") {
  const ScratchDirectory scratch;
  ModelData model = dense_model(false);
  model.weights[0].values = {0.0F,
                             -0.0F,
                             1e-45F,
                             std::numeric_limits<float>::max(),
                             std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             1.0F / 3,
                             -1e-40F,
                             1,
                             2,
                             3,
                             4};
  save_keras_h5(scratch / "m.h5", model);
  std::string why;
  CHECK(equal(model, load_keras_h5(scratch / "m.h5"), why));
}

TEST_CASE("equal models give equal bytes") {
  const ScratchDirectory scratch;
  save_keras_h5(scratch / "a.h5", random_model(3));
  save_keras_h5(scratch / "b.h5", random_model(3));
  CHECK(bytes_of(scratch / "a.h5") == bytes_of(scratch / "b.h5"));
}

TEST_CASE("a large model round-trips with its optimizer slots") {
  const ScratchDirectory scratch;
  ModelData model{Sequential{Input({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), Flatten(),
                             Dense(128, {.activation = relu}), Dense(10)},
                  {},
                  {}};
  CHECK(model.architecture.count_parameters(true) == 2'770'634);
  RandomStream random(5, RandomPurpose::test, 5);
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  model.compile_state = CompileState{{SGD({.momentum = 0.9}), SparseCategoricalCrossentropy(), {accuracy}}, 700, {}};
  model.compile_state->slots = slots_for(model.architecture, model.compile_state->optimizer);
  fill(model.compile_state->slots, random);
  save_keras_h5(scratch / "m.h5", model);
  std::string why;
  CHECK(equal(model, load_keras_h5(scratch / "m.h5"), why));
}

TEST_CASE("layer names beyond one HDF5 attribute are split") {
  const ScratchDirectory scratch;
  std::vector<Layer> layers{Input({2})};
  for (int i = 0; i < 4500; ++i)
    layers.emplace_back(Activation(relu, "a layer with quite a long name " + std::to_string(i)));
  layers.emplace_back(Dense(1));
  ModelData model{Sequential(layers), {}, {}};
  model.weights = weights_for(model.architecture);
  RandomStream random(6, RandomPurpose::test, 6);
  fill(model.weights, random);
  save_keras_h5(scratch / "m.h5", model);
  std::string why;
  CHECK(equal(model, load_keras_h5(scratch / "m.h5"), why));
}

TEST_CASE("optimizer slots have Keras' names and order") {
  const Sequential model{Input({4, 4, 1}), Conv2D(2, 3), BatchNormalization(), Flatten(), Dense(1)};
  const auto names = [&](const Optimizer& optimizer) {
    std::vector<std::string> all;
    for (const NamedTensor& slot : slots_for(model, optimizer)) all.push_back(slot.name);
    return all;
  };
  CHECK(names(SGD()).empty());
  CHECK(names(SGD({.momentum = 0.9})) ==
        std::vector<std::string>{"SGD/sequential_conv2d_kernel_momentum", "SGD/sequential_conv2d_bias_momentum",
                                 "SGD/sequential_batch_normalization_gamma_momentum",
                                 "SGD/sequential_batch_normalization_beta_momentum",
                                 "SGD/sequential_dense_kernel_momentum", "SGD/sequential_dense_bias_momentum"});
  const std::vector<std::string> adam = names(Adam());
  REQUIRE(adam.size() == 12);
  CHECK(adam[0] == "adam/sequential_conv2d_kernel_momentum");
  CHECK(adam[1] == "adam/sequential_conv2d_kernel_velocity");
  CHECK(adam[2] == "adam/sequential_conv2d_bias_momentum");
  const std::vector<std::string> rmsprop = names(RMSprop({.momentum = 0.5, .centered = true}));
  REQUIRE(rmsprop.size() == 18);
  CHECK(rmsprop[0] == "rmsprop/sequential_conv2d_kernel_velocity");
  CHECK(rmsprop[6] == "rmsprop/sequential_conv2d_kernel_momentum");
  CHECK(rmsprop[12] == "rmsprop/sequential_conv2d_kernel_average_gradient");
  for (const Optimizer& optimizer : testing::complete(
           {SGD(), SGD({.momentum = 0.9}), RMSprop({.momentum = 0.5}), RMSprop({.momentum = 0.5, .centered = true})})) {
    INFO(keras_name(optimizer));
    std::vector<NamedTensor> slots = slots_for(model, optimizer);
    CHECK(slots.size() == 6 * static_cast<std::size_t>(num_slots(optimizer)));
    fill_initial_slots(optimizer, slots);
    for (const NamedTensor& slot : slots) {
      CHECK(slot.name.starts_with(keras_instance_name(optimizer)));
      CHECK(slot.values.size() == static_cast<std::size_t>(slot.shape.elements()));
    }
  }
}

TEST_CASE("mismatched values are rejected before writing") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.h5";
  save_keras_h5(file, dense_model(true));
  const std::vector<char> earlier = bytes_of(file);
  ModelData short_of_values = dense_model(true);
  short_of_values.weights[0].values.pop_back();
  ModelData short_of_weights = dense_model(true);
  short_of_weights.weights.pop_back();
  ModelData short_of_slots = dense_model(true);
  short_of_slots.compile_state->slots.pop_back();
  for (const ModelData& wrong : {short_of_values, short_of_weights, short_of_slots}) {
    CHECK_THROWS_AS(save_keras_h5(file, wrong), InternalError);
  }
  ModelData not_utf8{Sequential({Input({4}), Dense(3)}, "caf\xe9"), dense_model(false).weights, {}};
  CHECK_THROWS_AS(save_keras_h5(file, not_utf8), UsageError);
  CHECK(bytes_of(file) == earlier);
  CHECK(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("the structure digest is stable across versions") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "pinned.h5";
  Hdf5Writer writer;
  writer.write_floats("a/values", {300, 2}, std::vector<float>(600, 0.5F));
  writer.write_scalar("b", std::int64_t{1} << 40U);
  writer.set_attribute("a", "names", std::vector<std::string>{"first", "second"});
  write_file_atomically(file, writer.finish());
  // If this value changes, files of earlier versions are rejected as damaged.
  const Hdf5Handle opened(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  CHECK(compute_structure_digest(opened).value_or(0) == 0xDC6B1446A9441339U);
}

TEST_CASE("a file's bytes do not depend on how its buffer grew") {
  const std::vector<float> values((std::size_t{5} << 20U) / sizeof(float), 0.5F);
  const Shape shape{static_cast<std::int64_t>(values.size())};
  const auto file_of = [&](std::size_t expected) {
    Hdf5Writer writer(expected);
    for (const char* name : {"a/first", "a/second", "b"}) writer.write_floats(name, shape, values);
    const std::span<const std::byte> image = writer.finish();
    return std::vector<std::byte>(image.begin(), image.end());
  };
  const std::vector<std::byte> grown = file_of(0);
  CHECK(grown.size() > 3 * values.size() * sizeof(float));
  CHECK(grown.size() < 3 * values.size() * sizeof(float) + 16384);
  CHECK(grown == file_of(std::size_t{16} << 20U));
  CHECK(grown == file_of(std::size_t{100} << 20U));
}
