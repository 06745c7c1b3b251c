// All file formats, selected by the extension: models round-trip bit for bit, damage is detected or harmless, and
// weights of another model are rejected by name. tests/interop checks that real Keras reads these files.
#include "checkpoint/model_file.hpp"

#include "checkpoint/file_tensors.hpp"
#include "checkpoint/hdf5/hdf5_writer.hpp"
#include "checkpoint/keras/keras_archive.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/keras/zip_file.hpp"
#include "core/random.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Returns the file's model, or nullopt if it is rejected as damaged. Any other exception fails the test.
std::optional<ModelData> try_load(const fs::path& file) {
  try {
    return load_model(file);
  } catch (const DataError&) {
  } catch (const IoError&) {
  }
  return std::nullopt;
}

ModelData model_of(Sequential architecture, std::optional<Optimizer> optimizer = {}) {
  ModelData model{std::move(architecture), {}, {}};
  RandomStream random(1, RandomPurpose::test, 1);
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  if (optimizer) {
    model.compile_state = CompileState{{*optimizer, SparseCategoricalCrossentropy(), {accuracy}}, 7, {}};
    model.compile_state->slots = slots_for(model.architecture, *optimizer);
    fill(model.compile_state->slots, random);
  }
  return model;
}

/// An untrained model to load weights into.
ModelData without_values(ModelData model) {
  model.weights.clear();
  if (model.compile_state) {
    model.compile_state->iteration = 0;
    model.compile_state->slots.clear();
  }
  return model;
}

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> keras_weights_image(const ModelData& model) {
  Hdf5Writer writer;
  const std::span<const std::byte> bytes = write_keras_weights(writer, model);
  return {bytes.begin(), bytes.end()};
}

void write_archive(const fs::path& file, const std::string& config, const std::vector<std::byte>& weights) {
  const std::vector<ZipMember> members{{"config.json", as_bytes(config)}, {"model.weights.h5", weights}};
  const std::vector<std::byte> bytes = make_zip(members);
  write_bytes(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

TEST_CASE("random models round-trip through .keras and .weights.h5 bit for bit") {
  const ScratchDirectory scratch;
  for (std::uint64_t seed = 1000; seed < 1100; ++seed) {
    CAPTURE(seed);
    const ModelData model = random_model(seed);
    std::string why;
    save_model(scratch / "m.keras", model);
    const bool archive_equal = equal(model, load_model(scratch / "m.keras"), why);
    CAPTURE(why);
    REQUIRE(archive_equal);

    save_model(scratch / "m.weights.h5", model);
    const bool weights_equal = equal(model, load_keras_weights(scratch / "m.weights.h5", without_values(model)), why);
    CAPTURE(why);
    REQUIRE(weights_equal);
  }
}

TEST_CASE("a metric called accuracy stays what it is") {
  const ScratchDirectory scratch;
  ModelData model = model_of({Input({2}), Dense(1)});
  const std::vector<Metric> metrics{metrics::CategoricalAccuracy{.name = "accuracy"}};
  model.compile_state = CompileState{{SGD(), CategoricalCrossentropy(), metrics}, 0, {}};
  for (const std::string end : {".keras", ".h5"}) {
    CAPTURE(end);
    save_model(scratch / ("m" + end), model);
    CHECK(load_model(scratch / ("m" + end)).compile_state.value().metrics == metrics);
  }
}

TEST_CASE("equal models give equal bytes in every format") {
  const ScratchDirectory scratch;
  for (const std::string end : {".keras", ".h5", ".hdf5", ".weights.h5"}) {
    save_model(scratch / ("a" + end), random_model(3));
    save_model(scratch / ("b" + end), random_model(3));
    CHECK(bytes_of(scratch / ("a" + end)) == bytes_of(scratch / ("b" + end)));
  }
}

TEST_CASE("the file extension selects the format and an unknown one is rejected") {
  CHECK(model_format_of("d/m.keras") == ModelFormat::keras);
  CHECK(model_format_of("m.hdf5") == ModelFormat::h5);
  CHECK(model_format_of("m.h5") == ModelFormat::h5);
  CHECK(model_format_of("m.weights.h5") == ModelFormat::weights);
  CHECK_FALSE(is_model_file_name("m.json"));
  const ModelData model = model_of({Input({2}), Dense(1)});
  require_words(message_of<UsageError>([&] { save_model("m.pt", model); }), {"m.pt", ".keras", ".weights.h5"});
  const ScratchDirectory scratch;
  save_model(scratch / "m.weights.h5", model);
  require_words(message_of<DataError>([&] { (void)load_model(scratch / "m.weights.h5"); }),
                {"m.weights.h5", "without the model"});
  require_words(message_of<UsageError>([&] { save_keras_weights(scratch / "m.h5", model); }), {"m.h5", ".weights.h5"});
}

TEST_CASE("a changed byte is detected or has no effect") {
  const ScratchDirectory scratch;
  for (const std::string end : {".keras", ".h5"}) {
    int refused = 0;
    constexpr int count = 300;
    for (std::uint64_t seed = 0; seed < count; ++seed) {
      RandomStream random(seed, RandomPurpose::test, 13);
      const ModelData model = random_model(seed / 50);
      const fs::path file = scratch / ("m" + end);
      if (seed % 50 == 0) save_model(file, model);
      std::vector<char> bytes = bytes_of(file);
      char& byte = bytes[random.below(static_cast<std::uint32_t>(bytes.size()))];
      byte = static_cast<char>(byte ^ (1 << random.below(8)));
      write_bytes(scratch / ("damaged" + end), bytes);
      CAPTURE(seed, end);
      const std::optional<ModelData> back = try_load(scratch / ("damaged" + end));
      if (!back) {
        ++refused;
        continue;
      }
      std::string why;
      const bool same = equal(model, *back, why);
      CAPTURE(why);
      CHECK(same);
    }
    CAPTURE(end);
    CHECK(refused > count / 6);
  }
}

TEST_CASE("truncated or corrupted archives never crash the reader") {
  const ScratchDirectory scratch;
  save_model(scratch / "m.keras", random_model(5));
  const std::vector<char> whole = bytes_of(scratch / "m.keras");
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 8) {
    write_bytes(scratch / "cut.keras", std::span(whole).first(size));
    CAPTURE(size);
    CHECK_FALSE(try_load(scratch / "cut.keras"));
  }
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    RandomStream random(seed, RandomPurpose::test, 14);
    std::vector<char> bytes = whole;
    for (std::uint32_t left = 1 + random.below(6); left > 0; --left) {
      const auto at = random.below(static_cast<std::uint32_t>(bytes.size()));
      // Half of the damage goes to the archive's directory at the end.
      const std::size_t place = random.below(2) == 0 ? at : bytes.size() - 1 - at % 256;
      bytes[place] = static_cast<char>(random.next());
    }
    write_bytes(scratch / "damaged.keras", bytes);
    CAPTURE(seed);
    CHECK_NOTHROW(try_load(scratch / "damaged.keras"));
  }
}

TEST_CASE("an archive is written in pieces, and what stops them is told") {
  const std::vector<std::byte> large(std::size_t{5} << 20U, std::byte{7});
  const std::vector<ZipMember> members{{"large", large}, {"small", as_bytes("text")}};
  std::vector<std::byte> written;
  std::size_t pieces = 0;
  write_zip(members, [&](std::size_t offset, std::span<const std::byte> bytes) {
    ++pieces;
    written.resize(std::max(written.size(), offset + bytes.size()));
    std::ranges::copy(bytes, written.begin() + static_cast<std::ptrdiff_t>(offset));
  });
  CHECK(pieces >= 5);
  CHECK(written == make_zip(members));
  const ScratchDirectory scratch;
  write_bytes(scratch / "m.zip", {reinterpret_cast<const char*>(written.data()), written.size()});
  CHECK(ZipReader(scratch / "m.zip").read("large", large.size()) == large);
  const auto full = [](std::size_t offset, std::span<const std::byte> /*bytes*/) {
    if (offset > 0) throw IoError("the disk is full");
  };
  CHECK(message_of<IoError>([&] { write_zip(members, full); }) == "the disk is full");
}

TEST_CASE("archives without a model are rejected with the reason") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.keras";
  const auto refusal = [&] { return message_of<DataError>([&] { (void)load_model(file); }); };
  const ModelData model = model_of({Input({4}), Dense(3)}, Adam());
  const std::string config = archive_config_to_json(model);
  const std::vector<std::byte> weights = keras_weights_image(model);

  require_words(message_of<IoError>([&] { (void)load_model(file); }), {"m.keras", "No such file"});
  write_bytes(file, std::string_view("this is not a zip archive"));
  require_words(refusal(), {"m.keras", "not a zip archive"});
  write_archive(file, config, {});
  require_words(refusal(), {"m.keras:model.weights.h5", "not HDF5"});
  write_archive(file, "{}", weights);
  require_words(refusal(), {"m.keras:config.json", "class_name"});
  write_archive(file, "[1", weights);
  require_words(refusal(), {"m.keras:config.json", "not JSON"});
  const std::vector<ZipMember> other{{"weights.json", as_bytes("{}")}};
  const std::vector<std::byte> bytes = make_zip(other);
  write_bytes(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  require_words(refusal(), {"m.keras", "no config.json"});

  // The weights are those of another model.
  write_archive(file, config, keras_weights_image(model_of({Input({5}), Dense(3)}, Adam())));
  require_words(refusal(), {"layers/dense/vars/0", "(5, 3)", "(4, 3)"});
  write_archive(file, config, keras_weights_image(model_of({Input({4}), Dense(3), Dense(3)}, Adam())));
  require_words(refusal(), {"2 weights", "'dense_1'", "lacks"});
  write_archive(file, config, keras_weights_image(model_of({Input({4}), Dense(3, {.use_bias = false})}, Adam())));
  require_words(refusal(), {"1 weights", "'dense'", "has 2"});
  write_archive(file, config, keras_weights_image(model_of({Input({4}), Dense(3)}, SGD({.momentum = 0.5}))));
  require_words(refusal(), {"4 variables", "Adam needs 6"});
}

TEST_CASE("the members of an archive belong together") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.keras";
  save_model(file, model_of({Input({4}), Dense(3)}, Adam()));
  constexpr std::size_t any_size = 1U << 20U;
  std::vector<std::vector<std::byte>> contents;
  const std::vector<std::string> names{"metadata.json", "config.json", "model.weights.h5"};
  for (const std::string& name : names) contents.push_back(ZipReader(file).read(name, any_size));
  const auto write = [&](std::size_t omitted) {
    std::vector<ZipMember> members;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (i != omitted) members.push_back({names[i], contents[i]});
    }
    const std::vector<std::byte> bytes = make_zip(members);
    write_bytes(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  const auto refusal = [&] { return message_of<DataError>([&] { (void)load_model(file); }); };
  write(names.size());
  CHECK_NOTHROW(static_cast<void>(load_model(file)));
  write(0);
  require_words(refusal(), {"m.keras:model.weights.h5", "metadata.json", "damaged"});
  for (const std::size_t member : {std::size_t{0}, std::size_t{1}}) {
    const std::vector<std::byte> before = contents[member];
    contents[member].push_back(std::byte{' '});  // JSON as before, and a checksum that suits it
    write(names.size());
    require_words(refusal(), {"m.keras:model.weights.h5", "config.json", "damaged"});
    contents[member] = before;
  }
}

TEST_CASE("weights load into a compiled model") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.weights.h5";
  const Sequential architecture{Input({4}), Dense(3)};
  save_keras_weights(file, model_of(architecture));
  const ModelData fresh = load_keras_weights(file, model_of(architecture, Adam()));
  REQUIRE(fresh.compile_state);
  CHECK(fresh.compile_state->iteration == 0);
  REQUIRE(fresh.compile_state->slots.size() == 4);
  CHECK(fresh.compile_state->slots[0].values == std::vector<float>(12, 0.0F));
  CHECK(fresh.weights[0].values == model_of(architecture).weights[0].values);

  save_keras_weights(file, model_of(architecture, Adam({.learning_rate = 0.25})));
  CHECK_FALSE(load_keras_weights(file, model_of(architecture)).compile_state);
  const ModelData trained = load_keras_weights(file, without_values(model_of(architecture, Adam())));
  CHECK(learning_rate_of(trained.compile_state->optimizer) == 0.25);
  CHECK(trained.compile_state->iteration == 7);
}

TEST_CASE("Keras 2 weights files are read") {
  const ScratchDirectory scratch;
  const Sequential model{Input({3}), Dense(2), Dropout(0.5), Dense(1, {.use_bias = false})};
  std::vector<NamedTensor> weights = weights_for(model);
  RandomStream random(3, RandomPurpose::test, 4);
  fill(weights, random);
  const auto write = [&](const std::vector<std::string>& names, const fs::path& file) {
    Hdf5Writer writer;
    writer.set_attribute("/", "layer_names", std::vector<std::string>{"dense", "dropout", "dense_1"});
    writer.set_attribute("/", "keras_version", "2.15.0");
    for (const char* layer : {"dense", "dropout", "dense_1"}) writer.create_group(layer);
    for (std::size_t i = 0; i < weights.size(); ++i) writer.write_floats(names[i], weights[i].shape, weights[i].values);
    writer.set_attribute("dense", "weight_names", std::vector<std::string>{"dense/kernel:0", "dense/bias:0"});
    writer.set_attribute("dropout", "weight_names", std::vector<std::string>{});
    writer.set_attribute("dense_1", "weight_names", std::vector<std::string>{"dense_1/kernel:0"});
    const std::span<const std::byte> image = writer.finish();
    write_bytes(file, {reinterpret_cast<const char*>(image.data()), image.size()});
  };
  write({"dense/dense/kernel:0", "dense/dense/bias:0", "dense_1/dense_1/kernel:0"}, scratch / "old.h5");
  const ModelData loaded = load_keras_weights(scratch / "old.h5", {model, {}, {}});
  for (std::size_t i = 0; i < weights.size(); ++i) CHECK(loaded.weights[i].values == weights[i].values);
  CHECK(!loaded.compile_state);
  const Sequential wider{Input({3}), Dense(4), Dropout(0.5), Dense(1, {.use_bias = false})};
  require_words(message_of<DataError>([&] {
                  static_cast<void>(load_keras_weights(scratch / "old.h5", {wider, {}, {}}));
                }),
                {"old.h5", "dense/kernel:0", "(3, 2)", "(3, 4)"});
  const Sequential shorter{Input({3}), Dense(2)};
  require_words(message_of<DataError>([&] {
                  static_cast<void>(load_keras_weights(scratch / "old.h5", {shorter, {}, {}}));
                }),
                {"3 weights", "2"});
}

TEST_CASE("an optimizer with a schedule stores no learning rate variable") {
  const ScratchDirectory scratch;
  const Sequential architecture{Input({4}), Dense(3)};
  const CosineDecay cosine({.initial_learning_rate = 0.5, .decay_steps = 20});
  const ModelData model = model_of(architecture, SGD({.learning_rate = cosine, .momentum = 0.5}));
  for (const std::string name : {"m.keras", "m.h5", "m.weights.h5"}) {
    CAPTURE(name);
    const fs::path file = scratch / name;
    save_model(file, model);
    const bool weights_only = name == "m.weights.h5";
    const ModelData back = weights_only ? load_keras_weights(file, without_values(model)) : load_model(file);
    std::string why;
    const bool same = equal(model, back, why);
    CAPTURE(why);
    CHECK(same);
    CHECK(learning_rate_of(back.compile_state->optimizer) == cosine);
    if (name == "m.keras") continue;
    const std::vector<NamedTensor> stored = load_file_tensors(file).optimizer;
    CHECK(stored.size() == 2);  // two slots
    for (const NamedTensor& tensor : stored) CHECK(tensor.name.find("learning_rate") == std::string::npos);
  }
  // Files with a learning rate variable and optimizers without one do not match, in either direction.
  const ModelData constant = model_of(architecture, SGD({.momentum = 0.5}));
  CHECK_THROWS_AS(load_keras_weights(scratch / "m.weights.h5", without_values(constant)), DataError);
  save_keras_weights(scratch / "constant.weights.h5", constant);
  CHECK_THROWS_AS(load_keras_weights(scratch / "constant.weights.h5", without_values(model)), DataError);
}

TEST_CASE("config.json of Keras 3.15 is read") {
  const std::string text = R"({"module": "keras", "class_name": "Sequential", "config": {"name": "mine",
    "trainable": true, "dtype": {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"},
    "registered_name": null, "shared_object_id": 1}, "layers": [
    {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 6], "dtype": "float32",
     "sparse": false, "ragged": false, "name": "input_layer", "optional": false}, "registered_name": null},
    {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense", "trainable": true, "dtype":
     {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": null,
     "shared_object_id": 1}, "units": 3, "activation": "relu", "use_bias": true, "kernel_initializer": {"module":
     "keras.initializers", "class_name": "HeNormal", "config": {"seed": null}, "registered_name": null},
     "bias_initializer": {"module": "keras.initializers", "class_name": "Zeros", "config": {}, "registered_name": null},
     "kernel_regularizer": null, "bias_regularizer": null, "kernel_constraint": null, "bias_constraint": null,
     "quantization_config": null}, "registered_name": null, "build_config": {"input_shape": [null, 6]}}],
    "build_input_shape": [null, 6]}, "registered_name": "Sequential", "build_config": {"input_shape": [null, 6]},
    "compile_config": {"optimizer": {"module": "keras.optimizers", "class_name": "SGD", "config": {"name": "SGD",
    "learning_rate": 0.5, "weight_decay": null, "clipnorm": null, "global_clipnorm": null, "clipvalue": null,
    "use_ema": false, "ema_momentum": 0.99, "ema_overwrite_frequency": null, "loss_scale_factor": null,
    "gradient_accumulation_steps": null, "momentum": 0.25, "nesterov": false}, "registered_name": null},
    "loss": "sparse_categorical_crossentropy", "loss_weights": null, "metrics": ["accuracy"], "weighted_metrics": null,
    "run_eagerly": false, "steps_per_execution": 1, "jit_compile": true}})";
  const Architecture architecture = model_from_json(text);
  CHECK(architecture.name() == "mine");
  CHECK(architecture.output_shape() == Shape{3});
  CHECK(architecture.layers()[1].parameters[0].initializer == Initializer::he_normal);
  const std::optional<CompileState> training = archive_compile_config_from_json(text);
  REQUIRE(training);
  CHECK(keras_name(training->optimizer) == "SGD");
  CHECK(learning_rate_of(training->optimizer) == 0.5);
  CHECK(training->metrics == std::vector<Metric>{accuracy});

  CHECK_FALSE(archive_compile_config_from_json(R"({"config": {}})"));
  CHECK_FALSE(archive_compile_config_from_json(R"({"compile_config": null})"));
  require_words(message_of<DataError>([] {
                  (void)archive_compile_config_from_json(R"({"compile_config": {"optimizer": {"class_name": "Muon"},
                                                      "loss": "mse"}})");
                }),
                {"compile_config", "Muon"});
}
