// Whole-model HDF5 files that are foreign, damaged or changed are rejected with the reason and never crash the reader.
#include "checkpoint/keras/keras_h5.hpp"

#include "checkpoint/hdf5/hdf5_digest.hpp"
#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/hdf5/hdf5_writer.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "core/random.hpp"
#include "dense_model.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <hdf5.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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

/// Loads a file that may be damaged. Returns whether it is still a model; any exception but these two fails the test.
bool loads(const fs::path& file) {
  try {
    (void)load_keras_h5(file);
    return true;
  } catch (const DataError&) {
  } catch (const IoError&) {
  }
  return false;
}

/// Changes a file through HDF5.
void edit(const fs::path& file, const std::function<void(hid_t)>& change) {
  const Hdf5ErrorSuppressor silence;
  const Hdf5Handle opened(H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
  REQUIRE(opened.valid());
  change(opened.get());
}

/// Deletes the attributes that only Lockstep's files have.
void delete_checks(hid_t file) {
  const auto next = [](hid_t root, const char* path, const H5L_info_t*, void*) -> herr_t {
    H5Adelete_by_name(root, path, "lockstep_digest", H5P_DEFAULT);  // fails if there is none
    return 0;
  };
  REQUIRE(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, next, nullptr) >= 0);
  H5Adelete(file, "lockstep_digest");
  REQUIRE(H5Adelete(file, "lockstep_structure_digest") >= 0);
}

/// Writes a file without Lockstep's digests and applies `change` to it.
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

TEST_CASE("foreign files are rejected with a specific error") {
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

TEST_CASE("a truncated file is rejected unless it still holds the model") {
  const ScratchDirectory scratch;
  const ModelData model = random_model(11);
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

TEST_CASE("corrupted bytes never crash the reader") {
  const ScratchDirectory scratch;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    RandomStream random(seed, RandomPurpose::test, 12);
    if (seed % 40 == 0) save_keras_h5(scratch / "m.h5", random_model(seed));
    std::vector<char> bytes = bytes_of(scratch / "m.h5");
    const auto size = static_cast<std::uint32_t>(bytes.size());
    for (std::uint32_t left = 1 + random.below(4); left > 0; --left) {
      // Half of the damage goes to the metadata at the beginning.
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

TEST_CASE("an inconsistent file is rejected with the location") {
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

TEST_CASE("compressed float64 datasets and untrained models are read") {
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
  const ModelData fresh = load_keras_h5(file);
  REQUIRE(fresh.compile_state);
  CHECK(fresh.compile_state->iteration == 0);
  REQUIRE(fresh.compile_state->slots.size() == 4);
  for (const NamedTensor& slot : fresh.compile_state->slots) {
    CHECK(slot.values == std::vector<float>(static_cast<std::size_t>(slot.shape.elements()), 0.0F));
  }
}

TEST_CASE("modification through HDF5 is detected by the checksums until they are deleted") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "m.h5";
  ModelData twins{Sequential{Input({3}), Dense(3), Dense(3)}, {}, {}};
  RandomStream random(2, RandomPurpose::test, 2);
  twins.weights = weights_for(twins.architecture);
  fill(twins.weights, random);
  twins.compile_state = CompileState{{SGD({.momentum = 0.5}), MeanSquaredError(), {}}, 7, {}};
  twins.compile_state->slots = slots_for(twins.architecture, twins.compile_state->optimizer);
  fill(twins.compile_state->slots, random);

  // Without a digest of the whole file, each of these would silently load as another model.
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
      [](hid_t id) {  // only the names of the first two variables, iteration and learning rate
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
    require_words(refusal_of(file),
                  {file.string(), "differ from those that were saved", "earlier copy", "lockstep_structure_digest"});
    edit(file, delete_checks);
    std::string why;
    CHECK_FALSE(equal(twins, load_keras_h5(file), why));
  }
  save_keras_h5(file, twins);
  edit(file, [](hid_t id) { H5Adelete(id, "lockstep_structure_digest"); });
  require_words(refusal_of(file), {file.string(), "lost its structure digest"});
}

TEST_CASE("HDF5's error printing is suppressed and then restored") {
  const ScratchDirectory scratch;
  H5E_auto2_t before = nullptr;
  H5E_auto2_t after = nullptr;
  void* data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &data);
  {
    const Hdf5Writer writer;
    H5E_auto2_t during = before;
    H5Eget_auto2(H5E_DEFAULT, &during, &data);
    CHECK(during != before);
  }
  H5Eget_auto2(H5E_DEFAULT, &after, &data);
  CHECK(before == after);
}

TEST_CASE("a changed value is noticed in every array of a file") {
  const ScratchDirectory directory;
  const fs::path file = directory / "model.h5";
  save_keras_h5(file, dense_model(true));
  std::vector<std::string> arrays;
  edit(file, [&](hid_t opened) {
    const auto collect = [](hid_t root, const char* path, const H5L_info_t*, void* found) -> herr_t {
      const Hdf5Handle dataset(H5Dopen2(root, path, H5P_DEFAULT), H5Dclose);  // fails for groups
      if (dataset.valid()) static_cast<std::vector<std::string>*>(found)->emplace_back(path);
      return 0;
    };
    REQUIRE(H5Lvisit(opened, H5_INDEX_NAME, H5_ITER_NATIVE, collect, &arrays) >= 0);
  });
  CHECK(arrays.size() >= 8);
  CHECK(std::ranges::any_of(arrays, [](const std::string& path) { return path.ends_with("learning_rate"); }));
  for (const std::string& path : arrays) {
    CAPTURE(path);
    save_keras_h5(file, dense_model(true));
    edit(file, [&](hid_t opened) {
      const Hdf5Handle dataset(H5Dopen2(opened, path.c_str(), H5P_DEFAULT), H5Dclose);
      const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
      const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
      std::vector<unsigned char> bytes(H5Tget_size(type.get()) *
                                       static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())));
      REQUIRE(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0);
      bytes.at(bytes.size() / 2) ^= 1U;
      REQUIRE(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0);
    });
    CHECK(contains(refusal_of(file), "differ from those that were saved"));
  }
}
