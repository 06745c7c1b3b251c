// `lockstep inspect`, called in this process: output, errors and exit codes.
#include "checkpoint/model_file.hpp"
#include "cli/history_summary.hpp"
#include "cli/inspect_text.hpp"
#include "cli/inspected_file.hpp"
#include "core/printable.hpp"
#include "data/npy.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"
#include "unit/cli/run_lockstep.hpp"

#include <lockstep/layers/sequential.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;
using nlohmann::json;

namespace {

/// A model with weights 0, 1, 2, ... and optimizer slots of 0.5.
ModelData counting_model() {
  ModelData model{Sequential{Input({2}), Dense(3), BatchNormalization(), Dense(1)}, {}, {}};
  model.weights = weights_for(model.architecture);
  float next = 0;
  for (NamedTensor& weight : model.weights) {
    weight.values.resize(static_cast<std::size_t>(weight.shape.elements()));
    for (float& value : weight.values) value = next++;
  }
  model.compile_state = CompileState{{Adam({.learning_rate = 0.25}), MeanSquaredError(), {accuracy}}, 1234, {}};
  model.compile_state->slots = slots_for(model.architecture, model.compile_state->optimizer);
  for (NamedTensor& slot : model.compile_state->slots) {
    slot.values.assign(static_cast<std::size_t>(slot.shape.elements()), 0.5F);
  }
  return model;
}

void write_text(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

const std::string history = R"({"model": "keras_mnist", "epochs": [{"epoch": 0, "loss": 2.5, "seconds": 1},
  {"epoch": 1, "loss": 0.125, "accuracy": null, "val_loss": 0.5, "seconds": 1}], "world": {"workers": 2}})";

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("statistics skip and count NaN and infinity") {
  const TensorStatistics found = compute_statistics({"w", {6}, {1, 2, 3, nan_value, 6, -infinity}});
  CHECK(found.mean == 3);
  CHECK(found.standard_deviation == Approx(std::sqrt(3.5)));
  CHECK(found.min == 1);
  CHECK(found.max == 6);
  CHECK(found.nans == 1);
  CHECK(found.infinities == 1);
  const TensorStatistics large = compute_statistics({"w", {2}, {16777216.0F, 16777218.0F}});
  CHECK(large.standard_deviation == 1);
  const TensorStatistics none = compute_statistics({"w", {1}, {nan_value}});
  CHECK(none.mean == 0);
  CHECK(none.nans == 1);
}

TEST_CASE("every file format is inspected and checked") {
  const ScratchDirectory scratch;
  for (const std::string name : {"m.keras", "m.h5", "m.hdf5", "m.weights.h5"}) {
    CAPTURE(name);
    const fs::path file = scratch / name;
    save_model(file, counting_model());
    const Result shown = run_lockstep({"inspect", file.string(), "--check"});
    CHECK(shown.code == ExitCode::success);
    CHECK(shown.err.empty());
    require_words(shown.out, {name, "1,234 steps", "(2, 3)", "NaN", "Optimizer state", "Checked: everything was read"});
    const bool whole = name != "m.weights.h5";
    if (whole) require_words(shown.out, {"Model: \"sequential\"", "Adam", "0.25", "mean_squared_error", "accuracy"});
    if (!whole) require_words(shown.out, {"Weights only", "layers/dense_1/vars/1"});

    const Result printed = run_lockstep({"inspect", "--json", file.string()});
    CHECK(printed.code == ExitCode::success);
    const json document = json::parse(printed.out);
    CHECK(document.at("bytes") == fs::file_size(file));
    CHECK(document.at("training").at("iteration") == 1234);
    CHECK(document.at("model").is_null() != whole);
    CHECK(document.at("problem").is_null());
    CHECK(document.at("history").is_null());
    REQUIRE(document.at("weights").size() == 8);
    const json kernel = document.at("weights").at(whole ? 0 : 4);
    CHECK(kernel.at("shape") == json({2, 3}));
    CHECK(kernel.at("mean") == 2.5);
    CHECK(kernel.at("min") == 0);
    CHECK(kernel.at("max") == 5);
    CHECK(kernel.at("nan") == 0);
    if (whole) CHECK(document.at("model").at("trainable_parameters") == 6 + 3 + 6 + 3 + 1);
  }
}

TEST_CASE("files that go away meanwhile are left out") {
  const ScratchDirectory scratch;
  constexpr int files = 30;
  const auto name = [](int number) { return fmt::format("step-{:02}.h5", number); };
  for (int i = 0; i < files; ++i) save_model(scratch / name(i), counting_model());
  std::thread rotation([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the files are listed, and few of them read
    for (int i = files - 1; i >= files / 2; --i) fs::remove(scratch / name(i));
  });
  const Result checked = run_lockstep({"inspect", "--check", scratch.path().string()});
  rotation.join();
  CHECK(checked.err.empty());
  CHECK(checked.code == ExitCode::success);
}

TEST_CASE("--data-dir tells whether a command takes the data") {
  const ScratchDirectory scratch;
  save_model(scratch / "whole.keras", counting_model());
  const auto write = [&](const std::string& name, const Shape& shape, const std::vector<float>& values) {
    const std::vector<std::byte> bytes = to_npy(shape, values);
    std::ofstream(scratch / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return (scratch / name).string();
  };
  const auto run_with = [&](const std::string& data, const std::string& command = "predict") {
    return run_lockstep(
        {"inspect", "--check", "--for", command, "--data-dir", data, (scratch / "whole.keras").string()});
  };
  const Result good = run_with(write("good.npy", Shape{2, 2}, {1, 2, 3, 4}));
  CHECK(good.code == ExitCode::success);
  require_words(good.out, {"lockstep predict takes it, for the data of", "good.npy"});
  const Result wide = run_with(write("wide.npy", Shape{2, 3}, {1, 2, 3, 4, 5, 6}));
  CHECK(wide.code == ExitCode::data);
  require_words(wide.err, {"whole.keras", "examples of shape (2,)", "wide.npy", "(3,)"});
  const Result infinite = run_with(write("nan.npy", Shape{1, 2}, {1, nan_value}));
  CHECK(infinite.code == ExitCode::data);
  require_words(infinite.err, {"nan.npy", "nan"});
  CHECK(run_with((scratch / "absent.npz").string(), "train").code != ExitCode::success);
  CHECK(run_lockstep({"inspect", "--check", "--data-dir", "d.npz", (scratch / "whole.keras").string()}).code ==
        ExitCode::usage);
}

TEST_CASE("--for tells whether a command takes the model") {
  const ScratchDirectory scratch;
  ModelData model = counting_model();
  save_model(scratch / "whole.keras", model);
  model.compile_state.reset();
  save_model(scratch / "bare.keras", model);
  model.compile_state = CompileState{{SGD(), MeanSquaredError(), {metrics::SparseCategoricalAccuracy()}}, 0, {}};
  save_model(scratch / "unfit.h5", model);
  save_model(scratch / "only.weights.h5", model);
  const auto run_for = [&](const std::string& command, const std::string& file) {
    return run_lockstep({"inspect", "--check", "--for", command, (scratch / file).string()});
  };
  for (const std::string command : {"train", "evaluate", "predict"}) {
    CAPTURE(command);
    const Result whole = run_for(command, "whole.keras");
    CHECK(whole.code == ExitCode::success);
    require_words(whole.out, {"all weights are finite; lockstep " + command + " takes it"});
    const Result weights = run_for(command, "only.weights.h5");
    CHECK(weights.code == ExitCode::data);
    require_words(weights.err, {"only.weights.h5", "without the model"});
  }
  CHECK(run_for("predict", "bare.keras").code == ExitCode::success);
  require_words(run_for("evaluate", "bare.keras").err, {"is not compiled", "--loss"});
  require_words(run_for("train", "bare.keras").err, {"is not compiled", "--loss and --optimizer"});
  CHECK(run_for("predict", "unfit.h5").code == ExitCode::success);
  for (const std::string command : {"train", "evaluate"}) {
    CAPTURE(command);
    const Result unfit = run_for(command, "unfit.h5");
    CHECK(unfit.code == ExitCode::data);
    require_words(unfit.err, {"unfit.h5", "sparse_categorical_accuracy", "needs targets that are class indices"});
  }
  const auto run_with = [&](const std::string& command, const std::vector<std::string>& overrides) {
    std::vector<std::string> args{"inspect", "--check", "--for", command, (scratch / "bare.keras").string()};
    args.insert(args.end(), overrides.begin(), overrides.end());
    return run_lockstep(args);
  };
  CHECK(run_with("train", {"--loss", "mean_squared_error", "--optimizer", "sgd"}).code == ExitCode::success);
  const Result with_loss = run_with("evaluate", {"--loss", "mean_squared_error"});
  CHECK(with_loss.code == ExitCode::success);
  require_words(with_loss.out, {"lockstep evaluate takes it with --loss in place of the file's"});
  require_words(run_with("train", {"--loss", "mean_squared_error"}).err, {"is not compiled", "give --optimizer"});
  CHECK(run_with("predict", {"--loss", "mean_squared_error"}).code == ExitCode::usage);
  CHECK(run_with("evaluate", {"--optimizer", "sgd"}).code == ExitCode::usage);
  const std::string whole = (scratch / "whole.keras").string();
  CHECK(run_lockstep({"inspect", "--compare", "--loss", "mse", whole, whole}).code == ExitCode::usage);
  CHECK(run_lockstep({"inspect", "--for", "train", (scratch / "whole.keras").string()}).code == ExitCode::usage);
  CHECK(run_for("traning", "whole.keras").code == ExitCode::usage);
  const std::string bare = (scratch / "bare.keras").string();
  const json one = json::parse(run_lockstep({"inspect", "--check", "--for", "train", "--json", bare}).out);
  require_words(one.at("problem").get<std::string>(), {"is not compiled"});
  CHECK(json::parse(run_lockstep({"inspect", "--json", bare}).out).at("problem").is_null());
  const json list =
      json::parse(run_lockstep({"inspect", "--check", "--for", "train", "--json", scratch.path().string()}).out);
  for (const json& file : list.at("files")) {
    CHECK(file.at("problem").is_null() == file.at("path").get<std::string>().ends_with("whole.keras"));
  }
  const Result all = run_for("train", "");
  CHECK(all.code == ExitCode::data);
  require_words(all.out, {"bare.keras", "BAD", "is not compiled"});
}

TEST_CASE("a schedule is shown with its name and the next learning rate") {
  const ScratchDirectory scratch;
  ModelData model = counting_model();
  model.compile_state->optimizer =
      Adam({.learning_rate = PiecewiseConstantDecay({.boundaries = {1233, 1234}, .values = {1, 0.125, 2}})});
  const std::string file = (scratch / "m.keras").string();
  save_model(file, model);
  require_words(run_lockstep({"inspect", file}).out,
                {"Adam, learning rate 0.125 (PiecewiseConstantDecay), 1,234 steps"});
  const json document = json::parse(run_lockstep({"inspect", "--json", file}).out);
  CHECK(document.at("training").at("learning_rate") == 0.125);
  CHECK(document.at("training").at("learning_rate_schedule") == "PiecewiseConstantDecay");
  CHECK(run_lockstep({"inspect", "--compare", file, file}).code == ExitCode::success);
}

TEST_CASE("non-finite values are shown and fail --check") {
  const ScratchDirectory scratch;
  ModelData model = counting_model();
  model.weights[0].values[2] = nan_value;
  model.weights[1].values[0] = infinity;
  for (const std::string name : {"m.keras", "m.weights.h5"}) {
    const fs::path file = scratch / name;
    save_model(file, model);
    CHECK(run_lockstep({"inspect", file.string()}).code == ExitCode::success);
    const Result checked = run_lockstep({"inspect", file.string(), "--check"});
    CHECK(checked.code == ExitCode::data);
    require_words(checked.err, {file.string(), "1 NaN", "1 infinite"});
    CHECK(json::parse(run_lockstep({"inspect", file.string(), "--json"}).out).at("problem").is_string());
  }
  model = counting_model();
  model.compile_state->slots[0].values[0] = nan_value;
  save_model(scratch / "m.h5", model);
  const Result checked = run_lockstep({"inspect", (scratch / "m.h5").string(), "--check"});
  CHECK(checked.code == ExitCode::data);
  require_words(checked.err, {"optimizer"});
}

TEST_CASE("damaged, foreign and missing files give one sentence and the right exit code") {
  const ScratchDirectory scratch;
  save_model(scratch / "m.h5", counting_model());
  const std::string whole = text_of(scratch / "m.h5");
  write_text(scratch / "cut.h5", whole.substr(0, whole.size() / 2));
  write_text(scratch / "cut.weights.h5", whole.substr(0, whole.size() / 2));
  write_text(scratch / "text.keras", "no zip");
  write_text(scratch / "text.h5", "no HDF5");
  for (const std::string name : {"cut.h5", "cut.weights.h5", "text.keras", "text.h5"}) {
    const Result result = run_lockstep({"inspect", (scratch / name).string()});
    CAPTURE(name);
    CHECK(result.code == ExitCode::data);
    CHECK(result.out.empty());
    require_words(result.err, {(scratch / name).string()});
    CHECK(result.err.find('\n') == result.err.size() - 1);
  }
  // A weight is changed without updating the digest: the bits of 5.0f in the first kernel.
  std::string changed = whole;
  const std::string five("\x00\x00\xa0\x40", 4);
  const std::size_t place = changed.find(five);
  REQUIRE(place != std::string::npos);
  changed[place + 1] = '\x01';
  write_text(scratch / "changed.h5", changed);
  const Result result = run_lockstep({"inspect", (scratch / "changed.h5").string(), "--check"});
  CHECK(result.code == ExitCode::data);
  require_words(result.err, {"changed.h5", "kernel", "differ from those that were saved"});

  CHECK(run_lockstep({"inspect", (scratch / "none.h5").string()}).code == ExitCode::usage);
  CHECK(run_lockstep({"inspect", (scratch / "none.keras").string()}).code == ExitCode::usage);
}

TEST_CASE("a directory is listed with its invalid files and the run history") {
  const ScratchDirectory scratch;
  fs::create_directories(scratch / "run/backup");
  fs::create_directories(scratch / "run/.hidden");
  save_model(scratch / "run/model.h5", counting_model());
  save_model(scratch / "run/backup/older.keras", counting_model());
  save_model(scratch / "run/.hidden/x.keras", counting_model());
  write_text(scratch / "run/.model.h5.0123abcd.tmp", "under construction");
  write_text(scratch / "run/history.json", history);
  write_text(scratch / "run/notes.txt", "no model");
  const std::string directory = (scratch / "run").string();
  const Result listed = run_lockstep({"inspect", directory, "--check"});
  CHECK(listed.code == ExitCode::success);
  require_words(listed.out, {"model.h5", "backup/older.keras", "1,234 steps", "keras_mnist, 2 epochs, 2 workers",
                             "loss 0.125", "val_loss 0.5", ".hidden/x.keras"});
  for (const std::string word : {"notes", "tmp", "skipped"}) CHECK(listed.out.find(word) == std::string::npos);
  require_words(run_lockstep({"inspect", (scratch / "run/model.h5").string()}).out,
                {"history.json beside it: keras_mnist"});
  write_text(scratch / "run/history.json", "{\"file\": \"other.keras\", " + history.substr(1));
  CHECK(run_lockstep({"inspect", (scratch / "run/model.h5").string()}).out.find("history.json") == std::string::npos);
  // A model that Keras saved under the same name has another optimizer step.
  for (const bool is_its_own : {true, false}) {
    write_text(
        scratch / "run/history.json",
        fmt::format("{{\"file\": \"model.h5\", \"iteration\": {}, ", is_its_own ? 1234 : 70) + history.substr(1));
    const std::string shown = run_lockstep({"inspect", (scratch / "run/model.h5").string()}).out;
    CHECK((shown.find("history.json beside it") != std::string::npos) == is_its_own);
  }

  write_text(scratch / "run/bad.keras", "no zip");
  const Result with_bad = run_lockstep({"inspect", directory});
  CHECK(with_bad.code == ExitCode::success);
  require_words(with_bad.out, {"bad.keras", "BAD: ", "not a zip archive", "model.h5"});
  const Result checked = run_lockstep({"inspect", directory, "--check", "--json"});
  CHECK(checked.code == ExitCode::data);
  require_words(checked.err, {"1 of 5 files", directory});
  int bad = 0;
  const json document = json::parse(checked.out);
  for (const json& file : document.at("files")) bad += file.at("problem").is_null() ? 0 : 1;
  CHECK(bad == 1);

  fs::create_directories(scratch / "empty");
  CHECK(run_lockstep({"inspect", (scratch / "empty").string()}).code == ExitCode::success);
  CHECK(run_lockstep({"inspect", (scratch / "empty").string(), "--check"}).code == ExitCode::data);
}

TEST_CASE("a directory passes --check only if everything in it was read") {
  const ScratchDirectory scratch;
  fs::create_directories(scratch / "elsewhere");
  fs::create_directories(scratch / "run/backup");
  save_model(scratch / "run/backup/model.h5", counting_model());
  fs::create_directory_symlink("backup", scratch / "run/latest");  // read under its own name
  const auto check = [&] { return run_lockstep({"inspect", (scratch / "run").string(), "--check"}); };
  CHECK(check().code == ExitCode::success);
  const auto require_skipped = [&](const std::string& name, const std::string& why) {
    const Result result = check();
    CHECK(result.code == ExitCode::data);
    require_words(result.out, {name + "  skipped: " + why});
    require_words(result.err, {"1 of the paths in", name, why});
    const json document = json::parse(run_lockstep({"inspect", (scratch / "run").string(), "--json"}).out);
    CHECK(document.at("skipped").at(0).at("why") == why);
    fs::remove(scratch / "run" / name);
  };
  fs::create_directory_symlink(scratch / "elsewhere", scratch / "run/link");
  require_skipped("link", "it is a link to a directory elsewhere");
  write_text(scratch / "run/M.KERAS", "");
  require_skipped("M.KERAS", "its ending is not in lower case");
  fs::create_symlink("nothing", scratch / "run/gone.h5");
  require_skipped("gone.h5", "it is no regular file");
  if (geteuid() != 0) {  // root may read everything
    fs::create_directory(scratch / "run/closed");
    fs::permissions(scratch / "run/closed", fs::perms::none);
    require_skipped("closed", "Permission denied");
  }
  CHECK(check().code == ExitCode::success);
}

TEST_CASE("models are compared by weight bits") {
  const ScratchDirectory scratch;
  const auto path = [&](const std::string& name) { return (scratch / name).string(); };
  for (const std::string name : {"a.keras", "a.h5", "a.weights.h5", "copy.weights.h5"}) {
    save_model(scratch / name, counting_model());
  }
  for (const std::string name : {"a.h5", "a.weights.h5"}) {
    const Result same = run_lockstep({"inspect", "--compare", path("a.keras"), path(name)});
    CHECK(same.code == ExitCode::success);
    require_words(same.out, {"All weights have the same bits"});
  }
  CHECK(run_lockstep({"inspect", "--compare", path("a.weights.h5"), path("copy.weights.h5")}).code ==
        ExitCode::success);

  ModelData other = counting_model();
  other.weights[0].values[0] = -0.0F;  // equal to 0, with other bits
  other.weights[1].values[2] += 0.5F;
  other.compile_state->iteration = 5;
  save_model(scratch / "b.keras", other);
  save_model(scratch / "b.weights.h5", other);
  const Result differ = run_lockstep({"inspect", "--compare", path("a.keras"), path("b.keras")});
  CHECK(differ.code == ExitCode::data);
  require_words(differ.out, {"dense/kernel: 1 of 6 values differ, by at most 0", "dense/bias: 1 of 3", "by at most 0.5",
                             "A was trained for 1234 steps, B for 5", "The weights differ"});
  CHECK(run_lockstep({"inspect", "--compare", path("a.weights.h5"), path("b.weights.h5")}).code == ExitCode::data);
  const Result as_json = run_lockstep({"inspect", "--json", "--compare", path("a.keras"), path("b.weights.h5")});
  CHECK(as_json.code == ExitCode::data);
  CHECK(json::parse(as_json.out).at("weights_equal") == false);
  CHECK(json::parse(as_json.out).at("differences").size() == 2);

  // Training state may differ while weights are equal.
  other = counting_model();
  other.compile_state.reset();
  save_model(scratch / "c.keras", other);
  const Result uncompiled = run_lockstep({"inspect", "--compare", path("a.keras"), path("c.keras")});
  CHECK(uncompiled.code == ExitCode::success);
  require_words(uncompiled.out, {"A is compiled, B is not"});

  ModelData larger{Sequential{Input({2}), Dense(4)}, {}, {}};
  larger.weights = weights_for(larger.architecture);
  for (NamedTensor& weight : larger.weights) weight.values.assign(static_cast<std::size_t>(weight.shape.elements()), 0);
  save_model(scratch / "d.h5", larger);
  const Result shapes = run_lockstep({"inspect", "--compare", path("a.keras"), path("d.h5")});
  CHECK(shapes.code == ExitCode::data);
  require_words(shapes.out, {"8 weights", "has 2", "(2, 3) in A, (2, 4) in B"});
}

TEST_CASE("control characters in names are escaped") {
  CHECK(printable("a\x1b[2Jb\tc\nd\x7f") == "a?[2Jb?c\nd?");
  const ScratchDirectory scratch;
  ModelData model{Sequential{Input({2}), Dense(1, {.name = "red\x1b[31m"})}, {}, {}};
  model.weights = weights_for(model.architecture);
  for (NamedTensor& weight : model.weights) weight.values.assign(static_cast<std::size_t>(weight.shape.elements()), 0);
  save_model(scratch / "m.h5", model);
  const Result shown = run_lockstep({"inspect", (scratch / "m.h5").string()});
  CHECK(shown.code == ExitCode::success);
  CHECK(shown.out.find('\x1b') == std::string::npos);
  require_words(shown.out, {"red?[31m"});
}

TEST_CASE("a damaged history.json is reported") {
  const ScratchDirectory scratch;
  const fs::path file = scratch / "history.json";
  CHECK_FALSE(read_history(file));
  write_text(file, "{\"epochs\": [");
  CHECK_THROWS_AS(read_history(file), DataError);
  write_text(file, "[]");
  CHECK_THROWS_AS(read_history(file), DataError);
  write_text(file, "{\"epochs\": []}");
  CHECK(describe(*read_history(file)) == "a run, 0 epochs");
  CHECK(run_lockstep({"inspect", scratch.path().string(), "--check"}).code == ExitCode::success);
}

TEST_CASE("help, version and usage errors") {
  const Result help = run_lockstep({"--help"});
  CHECK(help.code == ExitCode::success);
  require_words(help.out, {"inspect", "--version"});
  const Result of_inspect = run_lockstep({"inspect", "--help"});
  CHECK(of_inspect.code == ExitCode::success);
  require_words(of_inspect.out, {"--check", "--json", "--compare A B"});
  CHECK(run_lockstep({"--version"}).out == "lockstep " LOCKSTEP_VERSION "\n");

  const std::vector<std::vector<std::string>> wrong{{},
                                                    {"dance"},
                                                    {"inspect"},
                                                    {"inspect", "--chekc", "m.h5"},
                                                    {"inspect", "m.h5", "--compare", "a.h5", "b.h5"},
                                                    {"inspect", "--compare", "a.h5"},
                                                    {"inspect", "model.pt"}};
  for (const std::vector<std::string>& args : wrong) {
    const Result result = run_lockstep(args);
    CHECK(result.code == ExitCode::usage);
    CHECK(result.out.empty());
    CHECK(result.err.starts_with("error: "));
    CHECK(result.err.find('\n') == result.err.size() - 1);
  }
}

TEST_CASE("a model without weights is for plan, not for inspect") {
  const ScratchDirectory scratch;
  const std::string file = (scratch / "model.json").string();
  std::ofstream(file) << "{}";
  const Result result = run_lockstep({"inspect", "--check", file});
  CHECK(result.code == ExitCode::usage);
  require_words(result.err, {file + " holds no weights", "lockstep plan --model"});
}

TEST_CASE("unwritable output is an error") {
  std::ostream nowhere(nullptr);
  std::ostringstream err;
  const std::vector<std::string> args{"--version"};
  CHECK(run_command_line(args, nowhere, err) == ExitCode::io);
  require_words(err.str(), {"standard output"});
}
