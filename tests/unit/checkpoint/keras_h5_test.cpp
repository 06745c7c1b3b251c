// Whole-model files: what is written is read back bit for bit, and damage of every kind is told, never a crash.
// What real Keras makes of these files, and we of Keras' own, is in tests/interop.
#include "checkpoint/keras_h5.hpp"

#include "checkpoint/hdf5_reader.hpp"
#include "checkpoint/hdf5_writer.hpp"
#include "checkpoint/keras_config.hpp"
#include "core/random.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>

#include <hdf5.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// The DataError of a file that must not load.
std::string refusal_of(const fs::path& file) {
  return message_of<DataError>([&] { (void)load_keras_h5(file); });
}

/// Loads what may be damaged: true if it is a model after all. Whatever escapes but these two errors fails the test.
bool loads(const fs::path& file) {
  try {
    (void)load_keras_h5(file);
    return true;
  } catch (const DataError&) {
  } catch (const IoError&) {
  }
  return false;
}

SavedModel dense_model(bool with_training) {
  SavedModel model{Sequential{Input({4}), Dense(3)}, {}, {}};
  RandomStream random(1, RandomPurpose::test, 1);
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  if (with_training) {
    model.training = SavedTraining{Adam(), SparseCategoricalCrossentropy({.from_logits = true}), {accuracy}, 7, {}};
    model.training->slots = slots_for(model.architecture, model.training->optimizer);
    fill(model.training->slots, random);
  }
  return model;
}

/// Changes a file through HDF5.
void edit(const fs::path& file, const std::function<void(hid_t)>& change) {
  const Hdf5Silence silence;
  const Hdf5Handle opened(H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
  REQUIRE(opened.valid());
  change(opened.get());
}

/// What tells our files from those of others.
void delete_checks(hid_t file) {
  const auto next = [](hid_t root, const char* path, const H5L_info_t*, void*) -> herr_t {
    H5Adelete_by_name(root, path, "lockstep_digest", H5P_DEFAULT);  // fails where there is none
    return 0;
  };
  REQUIRE(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, next, nullptr) >= 0);
  H5Adelete(file, "lockstep_digest");
  REQUIRE(H5Adelete(file, "lockstep_seal") >= 0);
}

/// A file without our checks, right but for what `change` does to it.
void write_changed(const fs::path& file, const std::function<void(hid_t)>& change) {
  save_keras_h5(file, dense_model(true));
  edit(file, delete_checks);
  edit(file, change);
}

void replace_dataset(hid_t file, const char* path, hid_t type, const std::vector<hsize_t>& extents) {
  REQUIRE(H5Ldelete(file, path, H5P_DEFAULT) >= 0);
  const Hdf5Handle space(extents.empty() ? H5Screate(H5S_SCALAR)
                                         : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                         H5Sclose);
  const Hdf5Handle made(H5Dcreate2(file, path, type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
  REQUIRE(made.valid());
}

constexpr const char* kernel = "model_weights/dense/sequential/dense/kernel";

}  // namespace

TEST_CASE("random models come back bit for bit") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "model.h5";
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const SavedModel model = random_model(seed);
    save_keras_h5(file, model);
    const SavedModel back = load_keras_h5(file);
    std::string why;
    INFO("seed " << seed << ": " << why);
    const bool same = equal(model, back, why);
    CAPTURE(why);
    REQUIRE(same);
    for (const LayerInfo& layer : model.architecture.layers()) seen.insert(layer.class_name);
    if (model.training) seen.insert(std::string(name_of(model.training->optimizer)));
    if (model.training) seen.insert(std::string(name_of(learning_rate_of(model.training->optimizer))));
    if (model.training) seen.insert(std::string(name_of(model.training->loss)));
  }
  CHECK(seen.size() == 12 + 4 + 6 + 3);  // so that this test leaves nothing out
}

TEST_CASE("all bits of a float survive") {
  const ScratchDirectory scratch;
  SavedModel model = dense_model(false);
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

TEST_CASE("a model of many megabytes and its slots come back") {
  const ScratchDirectory scratch;
  SavedModel model{Sequential{Input({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), Flatten(),
                              Dense(128, {.activation = relu}), Dense(10)},
                   {},
                   {}};
  CHECK(model.architecture.count_parameters(true) == 2'770'634);
  RandomStream random(5, RandomPurpose::test, 5);
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  model.training = SavedTraining{SGD({.momentum = 0.9}), SparseCategoricalCrossentropy(), {accuracy}, 700, {}};
  model.training->slots = slots_for(model.architecture, model.training->optimizer);
  fill(model.training->slots, random);
  save_keras_h5(scratch / "m.h5", model);
  std::string why;
  CHECK(equal(model, load_keras_h5(scratch / "m.h5"), why));
}

TEST_CASE("more layers than one attribute can name") {
  const ScratchDirectory scratch;
  std::vector<Layer> layers{Input({2})};
  for (int i = 0; i < 4500; ++i)
    layers.emplace_back(Activation(relu, "a layer with quite a long name " + std::to_string(i)));
  layers.emplace_back(Dense(1));
  SavedModel model{Sequential(layers), {}, {}};
  model.weights = weights_for(model.architecture);
  RandomStream random(6, RandomPurpose::test, 6);
  fill(model.weights, random);
  save_keras_h5(scratch / "m.h5", model);
  std::string why;
  CHECK(equal(model, load_keras_h5(scratch / "m.h5"), why));
}

TEST_CASE("slots are named and ordered as Keras does") {
  const Sequential model{Input({4, 4, 1}), Conv2D(2, 3), BatchNormalization(), Flatten(), Dense(1)};
  const auto names = [&](const Optimizer& optimizer) {
    std::vector<std::string> all;
    for (const SavedTensor& slot : slots_for(model, optimizer)) all.push_back(slot.name);
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
  for (const Optimizer& optimizer : {Optimizer(SGD()), Optimizer(SGD({.momentum = 0.9})), Optimizer(Adam()),
                                     Optimizer(AdamW()), Optimizer(RMSprop({.momentum = 0.5, .centered = true}))}) {
    CHECK(slots_for(model, optimizer).size() == 6 * static_cast<std::size_t>(slots_of(optimizer)));
  }
}

TEST_CASE("values that do not fit the model are refused before anything is written") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.h5";
  save_keras_h5(file, dense_model(true));
  const std::vector<char> earlier = bytes_of(file);
  SavedModel short_of_values = dense_model(true);
  short_of_values.weights[0].values.pop_back();
  SavedModel short_of_weights = dense_model(true);
  short_of_weights.weights.pop_back();
  SavedModel short_of_slots = dense_model(true);
  short_of_slots.training->slots.pop_back();
  for (const SavedModel& wrong : {short_of_values, short_of_weights, short_of_slots}) {
    CHECK_THROWS_AS(save_keras_h5(file, wrong), InternalError);
  }
  SavedModel not_utf8{Sequential({Input({4}), Dense(3)}, "caf\xe9"), dense_model(false).weights, {}};
  CHECK_THROWS_AS(save_keras_h5(file, not_utf8), UsageError);
  CHECK(bytes_of(file) == earlier);
  CHECK(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("files that are none of ours are told apart") {
  const ScratchDirectory scratch;
  CHECK_THROWS_AS(load_keras_h5(scratch / "missing.h5"), IoError);
  CHECK_THROWS_AS(load_keras_h5(scratch.path()), IoError);
  write_bytes(scratch / "empty.h5", {});
  require_words(refusal_of(scratch / "empty.h5"), {(scratch / "empty.h5").string(), "not an HDF5 file"});
  write_bytes(scratch / "text.h5", std::vector<char>(5000, 'x'));
  require_words(refusal_of(scratch / "text.h5"), {"not an HDF5 file"});
  std::vector<char> only_signature{'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  write_bytes(scratch / "signature.h5", only_signature);
  require_words(refusal_of(scratch / "signature.h5"), {"damaged or cut short"});
}

TEST_CASE("a file cut anywhere is refused, or is whole enough to be the model") {
  const ScratchDirectory scratch;
  const SavedModel model = random_model(11);
  save_keras_h5(scratch / "m.h5", model);
  const std::vector<char> whole = bytes_of(scratch / "m.h5");
  REQUIRE(whole.size() > 4000);
  const std::size_t step = std::max<std::size_t>(1, whole.size() / 150);
  int refused = 0;
  for (std::size_t size = 0; size < whole.size(); size += step) {
    write_bytes(scratch / "cut.h5",
                std::vector<char>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    CAPTURE(size, whole.size());
    if (!loads(scratch / "cut.h5")) ++refused;
  }
  CHECK(refused >= 150);
}

TEST_CASE("flipped bits and scribbled bytes never crash the reader") {
  const ScratchDirectory scratch;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    RandomStream random(seed, RandomPurpose::test, 12);
    if (seed % 40 == 0) save_keras_h5(scratch / "m.h5", random_model(seed));
    std::vector<char> bytes = bytes_of(scratch / "m.h5");
    const auto size = static_cast<std::uint32_t>(bytes.size());
    for (std::uint32_t left = 1 + random.below(4); left > 0; --left) {
      // Half of the damage goes where the file describes itself.
      char& byte = bytes[random.below(random.below(2) == 0 ? size : std::min(size, 4096U))];
      byte = static_cast<char>(random.below(2) == 0 ? byte ^ (1 << random.below(8)) : random.next());
    }
    write_bytes(scratch / "damaged.h5", bytes);
    CAPTURE(seed);
    if (!loads(scratch / "damaged.h5")) ++refused;
  }
  CHECK(refused > 50);
  CHECK(refused < 400);
}

TEST_CASE("a file that contradicts itself is refused with the place") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.h5";
  const auto change = [&](const std::function<void(hid_t)>& action) {
    write_changed(file, action);
    return refusal_of(file);
  };
  require_words(change([](hid_t id) {
                  replace_dataset(id, kernel, H5T_NATIVE_FLOAT, {3, 4});
                }),
                {file.string(), kernel, "(3, 4)", "(4, 3)"});
  require_words(change([](hid_t id) {
                  replace_dataset(id, kernel, H5T_NATIVE_INT, {4, 3});
                }),
                {kernel, "floating-point"});
  require_words(change([](hid_t id) { H5Ldelete(id, kernel, H5P_DEFAULT); }), {"has no '", kernel});
  require_words(change([](hid_t id) { H5Adelete_by_name(id, "model_weights/dense", "weight_names", H5P_DEFAULT); }),
                {"model_weights/dense", "weight_names"});
  require_words(change([](hid_t id) { H5Adelete(id, "model_config"); }), {"model_config", "weights only"});
  require_words(change([](hid_t id) { H5Ldelete(id, "model_weights", H5P_DEFAULT); }), {"model_weights"});
  require_words(change([](hid_t id) { replace_dataset(id, "optimizer_weights/adam/iteration", H5T_NATIVE_FLOAT, {}); }),
                {"adam/iteration", "not one integer"});
  require_words(change([](hid_t id) {
                  H5Ldelete(id, kernel, H5P_DEFAULT);
                  H5Lcreate_external("/etc/passwd", "/x", id, kernel, H5P_DEFAULT, H5P_DEFAULT);
                }),
                {kernel, "links are not followed"});
  require_words(change([](hid_t id) {
                  H5Ldelete(id, kernel, H5P_DEFAULT);
                  H5Lcreate_soft("/model_weights/dense/sequential/dense/bias", id, kernel, H5P_DEFAULT, H5P_DEFAULT);
                }),
                {kernel, "links are not followed"});
  require_words(change([](hid_t id) {
                  H5Ldelete(id, kernel, H5P_DEFAULT);
                  const hsize_t extents[] = {4, 3};
                  const Hdf5Handle space(H5Screate_simple(2, extents, nullptr), H5Sclose);
                  const Hdf5Handle options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
                  H5Pset_external(options.get(), "/etc/passwd", 0, 48);
                  const Hdf5Handle made(
                      H5Dcreate2(id, kernel, H5T_NATIVE_FLOAT, space.get(), H5P_DEFAULT, options.get(), H5P_DEFAULT),
                      H5Dclose);
                  REQUIRE(made.valid());
                }),
                {kernel, "another file"});
}

TEST_CASE("compressed double precision is read, as are models never trained") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.h5";
  write_changed(file, [](hid_t id) {
    H5Ldelete(id, kernel, H5P_DEFAULT);
    const hsize_t extents[] = {4, 3};
    const Hdf5Handle space(H5Screate_simple(2, extents, nullptr), H5Sclose);
    const Hdf5Handle options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(options.get(), 2, extents);
    H5Pset_deflate(options.get(), 9);
    const Hdf5Handle made(H5Dcreate2(id, kernel, H5T_IEEE_F64BE, space.get(), H5P_DEFAULT, options.get(), H5P_DEFAULT),
                          H5Dclose);
    const std::vector<double> values{0.5, 1.5, 2.5, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    REQUIRE(H5Dwrite(made.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  });
  const std::vector<float> expected{0.5F, 1.5F, 2.5F, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  CHECK(load_keras_h5(file).weights[0].values == expected);

  write_changed(file, [](hid_t id) { H5Ldelete(id, "optimizer_weights", H5P_DEFAULT); });
  const SavedModel fresh = load_keras_h5(file);
  REQUIRE(fresh.training);
  CHECK(fresh.training->iteration == 0);
  REQUIRE(fresh.training->slots.size() == 4);
  for (const SavedTensor& slot : fresh.training->slots) {
    CHECK(slot.values == std::vector<float>(static_cast<std::size_t>(slot.shape.elements()), 0.0F));
  }
}

TEST_CASE("what is changed through HDF5 behind the seal's back is told, until the checks are deleted") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.h5";
  SavedModel twins{Sequential{Input({3}), Dense(3), Dense(3)}, {}, {}};
  RandomStream random(2, RandomPurpose::test, 2);
  twins.weights = weights_for(twins.architecture);
  fill(twins.weights, random);
  twins.training = SavedTraining{SGD({.momentum = 0.5}), MeanSquaredError(), {}, 7, {}};
  twins.training->slots = slots_for(twins.architecture, twins.training->optimizer);
  fill(twins.training->slots, random);

  // All of these give another model without a word where nobody looks at the whole.
  const auto exchange = [](hid_t id, const std::string& left, const std::string& right) {
    REQUIRE(H5Lmove(id, left.c_str(), id, "aside", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    REQUIRE(H5Lmove(id, right.c_str(), id, left.c_str(), H5P_DEFAULT, H5P_DEFAULT) >= 0);
    REQUIRE(H5Lmove(id, "aside", id, right.c_str(), H5P_DEFAULT, H5P_DEFAULT) >= 0);
  };
  const std::vector<std::function<void(hid_t)>> changes{
      [&](hid_t id) {
        exchange(id, "model_weights/dense/sequential/dense/kernel", "model_weights/dense_1/sequential/dense_1/kernel");
      },
      [&](hid_t id) {
        exchange(id, "optimizer_weights/SGD/sequential_dense_bias_momentum",
                 "optimizer_weights/SGD/sequential_dense_1_bias_momentum");
      },
      [](hid_t id) { H5Ldelete(id, "optimizer_weights", H5P_DEFAULT); },
      [](hid_t id) { H5Adelete(id, "training_config"); },
      [](hid_t id) {  // the names of the first two variables only: iteration and learning rate
        const hsize_t count = 2;
        const Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
        const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
        H5Tset_size(type.get(), 17);
        H5Adelete_by_name(id, "optimizer_weights", "weight_names", H5P_DEFAULT);
        const Hdf5Handle names(H5Acreate_by_name(id, "optimizer_weights", "weight_names", type.get(), space.get(),
                                                 H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                               H5Aclose);
        REQUIRE(H5Awrite(names.get(), type.get(), "SGD/iteration\0\0\0\0SGD/learning_rate") >= 0);
      },
  };
  for (const auto& change : changes) {
    save_keras_h5(file, twins);
    edit(file, change);
    require_words(refusal_of(file), {file.string(), "not those that were saved", "earlier copy", "lockstep_seal"});
    edit(file, delete_checks);
    std::string why;
    CHECK_FALSE(equal(twins, load_keras_h5(file), why));
  }
  save_keras_h5(file, twins);
  edit(file, [](hid_t id) { H5Adelete(id, "lockstep_seal"); });
  require_words(refusal_of(file), {file.string(), "lost its seal"});
}

TEST_CASE("a file's bytes do not depend on how its memory grew") {
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

TEST_CASE("HDF5 prints nothing, here and afterwards as before") {
  const ScratchDirectory scratch;
  H5E_auto2_t before = nullptr;
  H5E_auto2_t after = nullptr;
  void* data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &data);
  {
    const Hdf5Writer writer;
    H5E_auto2_t during = before;
    H5Eget_auto2(H5E_DEFAULT, &during, &data);
    CHECK(during == nullptr);
  }
  H5Eget_auto2(H5E_DEFAULT, &after, &data);
  CHECK(before == after);
}
