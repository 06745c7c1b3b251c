// `lockstep export`, called in this process: files, errors and exit codes.
#include "checkpoint/model_file.hpp"
#include "export/onnx_file.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"
#include "unit/cli/run_lockstep.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// A folder with a model of zeros, but for its last weight.
struct Folder {
  ScratchDirectory folder;
  std::string model = folder / "model.keras";
  std::string output = folder / "model.onnx";

  explicit Folder(float weight = 0) {
    ModelData data{Sequential{Input({2}, "x"), Dense(3, {.name = "y"})}, {}, {}};
    data.weights = weights_for(data.architecture);
    for (NamedTensor& each : data.weights) each.values.resize(static_cast<std::size_t>(each.shape.elements()));
    data.weights.back().values.back() = weight;
    save_model(model, data);
  }
};

/// PATH with one directory: without python3, or with another program of that name.
class PathWithoutPython {
 public:
  explicit PathWithoutPython(const fs::path& directory) { setenv("PATH", directory.c_str(), 1); }
  ~PathWithoutPython() { setenv("PATH", before_.c_str(), 1); }
  PathWithoutPython(const PathWithoutPython&) = delete;
  PathWithoutPython& operator=(const PathWithoutPython&) = delete;

 private:
  std::string before_ = std::getenv("PATH");
};

void refuses(const std::vector<std::string>& args, const std::string& message, ExitCode code = ExitCode::usage) {
  const Result result = run_lockstep(args);
  CHECK(result.code == code);
  CHECK(result.err == "error: " + message + "\n");
}

bool writes_onnx() {
  try {
    require_onnx();
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace

TEST_CASE("export writes the model, and says what it takes and gives", "[export]") {
  const Folder at;
  const Result result = run_lockstep({"export", "--model", at.model, "--output", at.output});
  if (!writes_onnx()) {
    CHECK(result.code == ExitCode::usage);
    require_words(result.err, {"built without ONNX", "libonnx-dev", "--format saved-model"});
    return;
  }
  CHECK(result.code == ExitCode::success);
  CHECK(result.out == "Saved " + at.output + ": ONNX, opset 17; from x (batch, 2) to y (batch, 3)\n");
  CHECK(result.err.empty());
  CHECK(fs::file_size(at.output) > 9 * sizeof(float));
  const std::vector<char> first = bytes_of(at.output);
  CHECK(run_lockstep({"export", "--model", at.model, "--output", at.output}).code == ExitCode::success);
  CHECK(bytes_of(at.output) == first);
  const Folder spoilt(std::numeric_limits<float>::quiet_NaN());
  refuses({"export", "--model", spoilt.model, "--output", spoilt.output},
          spoilt.model +
              ": weight 'sequential/y/bias' holds NaN or infinite values (the first at index 2); use an earlier copy",
          ExitCode::data);
}

TEST_CASE("export refuses wrong options", "[export]") {
  const Folder at;
  refuses({"export"}, "lockstep export needs --model FILE; see lockstep export --help");
  refuses({"export", "--model", at.model}, "lockstep export needs --output FILE; see lockstep export --help");
  refuses({"export", "--model", "none.keras", "--output", at.output},
          "there is no file none.keras; name a .keras or .h5 file");
  refuses({"export", "--model", ".", "--output", at.output}, "--model . is a directory; name a .keras or .h5 file");
  refuses({"export", "--model", at.model, "--output", "model.pb"},
          "--output is model.pb, whose ending names no format; end it in .onnx, or give --format onnx or saved-model");
  refuses({"export", "--model", at.model, "--output", at.output, "--opset", "16"},
          "--opset is '16' but must be a whole number from 17 to 21; see --help");
  refuses({"export", "--model", at.model, "--output", at.model, "--format", "saved-model"},
          "--output would overwrite " + at.model + ", which --model reads; choose another name");
  refuses({"export", "--model", at.model, "--output", at.folder / "saved", "--format", "saved-model", "--opset", "19"},
          "--opset is a version of ONNX's operators, which a SavedModel does not have; leave it out, or give --format "
          "onnx");
}

TEST_CASE("export keeps what it cannot replace", "[export]") {
  if (!writes_onnx()) return;
  const Folder at;
  const std::vector<char> before = bytes_of(at.model);
  refuses({"export", "--model", at.model, "--output", at.model, "--format", "onnx"},
          "--output would overwrite " + at.model + ", which --model reads; choose another name");
  CHECK(bytes_of(at.model) == before);
  refuses({"export", "--model", at.model, "--output", at.folder.path(), "--format", "onnx"},
          "--output " + at.folder.path().string() + " is no regular file; choose another");
  CHECK(run_lockstep({"export", "--model", at.model, "--output", "/proc/none/model.onnx"}).code == ExitCode::io);
}

TEST_CASE("export refuses a damaged model", "[export]") {
  if (!writes_onnx()) return;
  const Folder at;
  write_bytes(at.model, std::vector<char>{'P', 'K'});
  const Result result = run_lockstep({"export", "--model", at.model, "--output", at.output});
  CHECK(result.code == ExitCode::data);
  require_words(result.err, {at.model});
  CHECK_FALSE(fs::exists(at.output));
}

TEST_CASE("a SavedModel needs Keras, and a new directory", "[export]") {
  const Folder at;
  const PathWithoutPython path(at.folder.path());
  const std::string directory = at.folder / "saved";
  refuses({"export", "--model", at.model, "--output", directory, "--format", "saved-model"},
          "--format saved-model runs Keras, and the python3 on PATH lacks Keras or TensorFlow; install them with pip "
          "install keras tensorflow, or choose --format onnx");
  CHECK_FALSE(fs::exists(directory));
  fs::create_directory(directory);
  refuses({"export", "--model", at.model, "--output", directory, "--format", "saved-model"},
          "--output " + directory + " exists, and a SavedModel is a new directory; choose another name");
}

TEST_CASE("a SavedModel that cannot be written, or whose Python is killed, is no fault of the model", "[export]") {
  const Folder at;
  const PathWithoutPython path(at.folder.path());
  const auto export_with = [&at](const std::string& python) {
    const std::string script = "#!/bin/sh\n" + python + "\n";
    write_bytes(at.folder / "python3", std::vector<char>(script.begin(), script.end()));
    fs::permissions(at.folder / "python3", fs::perms::owner_all);
    return run_lockstep({"export", "--model", at.model, "--output", at.folder / "saved", "--format", "saved-model"});
  };
  CHECK(export_with("exit 1").code == ExitCode::data);
  CHECK(export_with("exit 4").code == ExitCode::io);
  const Result killed = export_with("kill -KILL $$");
  CHECK(killed.code == ExitCode::internal);
  require_words(killed.err, {"killed by signal 9", at.model});
  CHECK_FALSE(fs::exists(at.folder / "saved"));
  CHECK(export_with("/bin/mkdir \"$4\" && echo a > \"$4/b\"").code == ExitCode::success);
  CHECK(fs::file_size(at.folder / "saved/b") == 2);
}

TEST_CASE("export replaces only files of ONNX", "[export]") {
  if (!writes_onnx()) return;
  const Folder at;
  const std::string history = (at.folder / "history.json").string();
  write_bytes(history, std::vector<char>{'{', '}'});
  fs::create_symlink(history, at.folder / "link.onnx");
  for (const std::string& output : {history, (at.folder / "link.onnx").string()}) {
    refuses({"export", "--model", at.model, "--output", output, "--format", "onnx"},
            "--output " + output + " exists and does not end in .onnx, so it may be no file of ONNX; remove it, or " +
                "choose another name");
  }
  CHECK(bytes_of(history) == std::vector<char>{'{', '}'});
}
